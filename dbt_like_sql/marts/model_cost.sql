-- Requests to models, and their cost.
-- Row: one day (UTC) on which requests were sent, workspace, agent, grain, purpose and model.
-- Owner: team:memory
-- Incremental: month
-- Columns:
--   month - Month of the day, such as 2024-01.
--   day - Day on which the requests were sent, in UTC.
--   workspace_id - Workspace.
--   agent_id - Agent.
--   grain - Grain of the memory.
--   purpose - extraction, summary, upkeep (consolidation) or embedding.
--   model - Requested model.
--   calls - Requests; one that served several agents counts for the first of them.
--   failed - Requests without a usable answer.
--   tokens_in - Tokens read, as the provider counted.
--   tokens_out - Tokens written, as the provider counted.
--   cost_usd - Cost of the requests with a known price.
--   calls_without_price - Requests that read tokens at an unknown price.
--   seconds - Seconds spent waiting for answers.
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
