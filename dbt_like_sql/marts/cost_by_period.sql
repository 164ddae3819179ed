-- Cost of the memory of each period, whenever it was computed.
-- Row: one workspace, grain and period, and month in which requests were sent for it.
-- Owner: team:memory
-- Incremental: month
-- Columns:
--   month - Month (UTC) in which the requests were sent, such as 2024-01.
--   workspace_id - Workspace.
--   grain - Grain of the memory.
--   period - Period of the memory.
--   calls - Requests; one that served several periods counts for the first of them.
--   tokens_in - Tokens read, as the provider counted.
--   tokens_out - Tokens written, as the provider counted.
--   cost_usd - Cost of the requests with a known price.
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
GROUP BY month, workspace_id, grain, period
ORDER BY
    month, workspace_id,
    list_position(['working', 'daily', 'weekly', 'monthly', 'quarterly', 'yearly'], grain), period
