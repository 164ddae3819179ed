-- Materialized partitions from the ledger, with their size and cost.
-- Row: one partition of an asset.
-- Owner: team:memory
-- Columns:
--   asset - Asset, as in Dagster.
--   period - Period.
--   rows - Number of rows when the partition was materialized.
--   agents - Number of agents with rows.
--   unfinished - Number of fallbacks and of items that wait for a model.
--   expired - Number of rows that have expired since.
--   bytes - Size of the files; null if the asset has no files of its own for the period.
--   calls - Number of model requests for the partition, in all runs.
--   cost_usd - Cost in US dollars of the requests with a known price.
WITH costs AS (
    SELECT
        CASE WHEN grain = 'working' THEN 'working_facts' ELSE grain || '_summaries' END AS asset,
        period, sum(calls) AS calls, sum(cost_usd) AS cost_usd
    FROM cost_by_period
    GROUP BY grain, period
)
SELECT
    l.asset,
    l.period,
    l.rows,
    l.agents,
    l.unfinished,
    l.expired,
    f.bytes,
    coalesce(c.calls, 0)::BIGINT AS calls,
    round(coalesce(c.cost_usd, 0), 9)::DOUBLE AS cost_usd
FROM stg_ledger AS l
LEFT JOIN stg_files AS f ON f.asset = l.asset AND f.period = l.period
LEFT JOIN costs AS c ON c.asset = l.asset AND c.period = l.period
ORDER BY l.asset, l.period
