-- Costs, tokens and durations of model requests are not negative.
-- Row: one day, workspace, agent, identity, grain, purpose and model with a negative sum.
-- Owner: team:memory
-- Checks: model_cost
-- Severity: error
SELECT day, workspace_id, agent_id, identity, grain, purpose, model, tokens_in, tokens_out, cost_usd, seconds
FROM model_cost
WHERE tokens_in < 0 OR tokens_out < 0 OR cost_usd < 0 OR seconds < 0
ORDER BY day, workspace_id, agent_id, identity, grain, purpose, model
