-- Requests sent to models.
-- Row: one request, or one share of a request that served several agents or periods. Shares divide its tokens and cost.
-- Owner: team:memory
SELECT
    id, request_id, key, called_at, called_at::DATE AS day, strftime(called_at, '%Y-%m') AS month, workspace_id,
    agent_id, identity, purpose, grain, period, model, prompt_version, texts, tokens_in, tokens_out, cost, seconds,
    outcome
FROM model_calls
