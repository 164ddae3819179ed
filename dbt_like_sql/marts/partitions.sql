-- What was made: the ledger, with bytes and cost.
-- Row: one partition of an asset.
-- Owner: team:memory
-- Columns:
--   asset - The asset, as in Dagster.
--   period - The period.
--   rows - That it held when it was made.
--   agents - That had rows.
--   unfinished - What waits for a model.
--   expired - Rows that have expired since.
--   bytes - Of its files; none where the asset has no files of its own for a period.
--   calls - Requests to models that were sent for it, whenever that was.
--   cost_usd - Of those whose price is known.
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
