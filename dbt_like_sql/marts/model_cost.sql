-- What models were asked for, and what that cost.
-- Row: one day (UTC, on which the requests were sent), workspace, agent, grain, purpose and model. Owner: team memory.
-- Columns: calls (a request that served several agents counts for the first of them); failed, those without a usable
-- answer; tokens_in, tokens_out; cost_usd, of the calls whose price is known; calls_without_price; seconds, spent waiting.
SELECT
    day,
    workspace_id,
    agent_id,
    grain,
    purpose,
    model,
    count(*) FILTER (id = request_id) AS calls,
    count(*) FILTER (id = request_id AND outcome <> 'ok') AS failed,
    sum(tokens_in)::BIGINT AS tokens_in,
    sum(tokens_out)::BIGINT AS tokens_out,
    coalesce(sum(cost), 0)::DOUBLE AS cost_usd,
    count(*) FILTER (id = request_id AND cost IS NULL AND tokens_in > 0) AS calls_without_price,
    sum(seconds)::DOUBLE AS seconds
FROM stg_model_calls
GROUP BY day, workspace_id, agent_id, grain, purpose, model
ORDER BY day, workspace_id, agent_id, list_position(['working', 'daily', 'weekly', 'monthly', 'quarterly', 'yearly'], grain), purpose, model
