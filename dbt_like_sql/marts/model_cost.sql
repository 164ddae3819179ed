-- Model requests and their cost by day, agent, user and purpose.
-- Row: one day, workspace, agent, identity, grain, purpose and model.
-- Owner: team:memory
-- Incremental: month
-- Columns:
--   month - Month of the day, such as 2024-01.
--   day - Day (UTC) of the requests.
--   workspace_id - Workspace.
--   agent_id - Agent.
--   identity - User or group whose memory it is, such as user:u17; empty for the agent's own.
--   grain - Grain of the memory that the requests were sent for; working for reading.
--   purpose - extraction, summary, consolidation, embedding or reading.
--   model - Requested model.
--   calls - Number of requests; a request for several identities counts for the first of them.
--   failed - Number of requests without a usable answer.
--   tokens_in - Tokens read, as counted by the provider.
--   tokens_out - Tokens written, as counted by the provider.
--   cost_usd - Cost in US dollars of the requests with a known price.
--   calls_without_price - Number of requests that read tokens at an unknown price.
--   seconds - Total duration in seconds.
SELECT
    month,
    day,
    workspace_id,
    agent_id,
    identity,
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
GROUP BY month, day, workspace_id, agent_id, identity, grain, purpose, model
ORDER BY
    day, workspace_id, agent_id, identity,
    list_position(['working', 'daily', 'weekly', 'monthly', 'quarterly', 'yearly'], grain), purpose, model
