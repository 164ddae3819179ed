-- Model requests and their cost by the period of the memory that they were sent for; without those of readers.
-- Row: one workspace, grain, period, and month of the requests.
-- Owner: team:memory
-- Incremental: month
-- Columns:
--   month - Month (UTC) of the requests, such as 2024-01.
--   workspace_id - Workspace.
--   grain - Grain of the memory.
--   period - Period of the memory.
--   calls - Number of requests; a request for several periods counts for the first of them.
--   tokens_in - Tokens read, as counted by the provider.
--   tokens_out - Tokens written, as counted by the provider.
--   cost_usd - Cost in US dollars of the requests with a known price.
SELECT
    month,
    workspace_id,
    grain,
    period,
    count(*) FILTER (id = request_id) AS calls,
    sum(tokens_in)::BIGINT AS tokens_in,
    sum(tokens_out)::BIGINT AS tokens_out,
    round(coalesce(sum(cost), 0), 9)::DOUBLE AS cost_usd
FROM stg_model_calls
WHERE purpose <> 'reading'
GROUP BY month, workspace_id, grain, period
ORDER BY
    month, workspace_id,
    list_position(['working', 'daily', 'weekly', 'monthly', 'quarterly', 'yearly'], grain), period
