-- What models were asked for, and what that cost.
-- Row: one day (UTC, on which the requests were sent), workspace, agent, grain, purpose and model.
-- Owner: team:memory
-- Incremental: month
-- Columns:
--   month - Month of the day, as 2024-01.
--   day - Day on which the requests were sent, in UTC.
--   workspace_id - Workspace.
--   agent_id - Agent.
--   grain - Grain of the memory that they were sent for.
--   purpose - extraction, summary, upkeep or embedding.
--   model - Model that was asked.
--   calls - Requests; one that served several agents counts for the first of them.
--   failed - Those without a usable answer.
--   tokens_in - Read, as the provider counted.
--   tokens_out - Written; likewise.
--   cost_usd - Of the calls whose price is known.
--   calls_without_price - Those that read something at a price that nobody knows.
--   seconds - Spent waiting.
SELECT
    month,
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
    round(coalesce(sum(cost), 0), 9)::DOUBLE AS cost_usd,
    count(*) FILTER (id = request_id AND cost IS NULL AND tokens_in > 0) AS calls_without_price,
    round(sum(seconds), 6)::DOUBLE AS seconds
FROM stg_model_calls
GROUP BY month, day, workspace_id, agent_id, grain, purpose, model
ORDER BY
    day, workspace_id, agent_id,
    list_position(['working', 'daily', 'weekly', 'monthly', 'quarterly', 'yearly'], grain), purpose, model
