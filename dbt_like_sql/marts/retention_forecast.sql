-- Expected expirations under the configured retention. A period whose parent is not yet summarized is kept longer.
-- Row: one workspace, retention class and month of expiration; one more for memory that never expires.
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace.
--   kept - Retention class: conversations (messages and turns), facts, preferences, daily, …, yearly.
--   duration - Configured duration: 48h, 30d, 6w, 6mo, 4q, 2y or forever.
--   expires_month - Month of expiration, such as 2024-01; null for memory that never expires.
--   rows - Number of facts, messages or summaries.
--   bytes - Bytes of their text, in UTF-8. Files also hold vectors, and are compressed.
--   first_expires_on - First day of expiration; for durations in hours, the day in UTC or the next one.
--   last_expires_on - Last day of expiration, likewise.
WITH kept AS (
    SELECT workspace_id, kept, ends_on, sum(rows + messages) AS rows, sum(bytes) AS bytes
    FROM memory_by_period
    GROUP BY workspace_id, kept, ends_on
),
configured AS (
    SELECT
        k.workspace_id, k.kept, k.ends_on, k.rows, k.bytes,
        coalesce(own.duration, others.duration) AS duration,
        coalesce(own.hours, others.hours) AS hours,
        coalesce(own.days, others.days) AS days,
        coalesce(own.months, others.months) AS months
    FROM kept AS k
    LEFT JOIN stg_retention AS own ON own.workspace_id = k.workspace_id AND own.kept = k.kept
    LEFT JOIN stg_retention AS others ON others.workspace_id = '' AND others.kept = k.kept AND own.kept IS NULL
),
-- A period expires if it ended before the day one duration ago. Months before the 31st may be the 28th.
forecast AS (
    SELECT
        workspace_id, kept, duration, rows, bytes,
        CASE
            WHEN hours IS NOT NULL THEN (ends_on + to_hours(hours))::DATE
            WHEN days IS NOT NULL THEN ends_on + (days + 1)::INTEGER
            WHEN months IS NOT NULL THEN list_min([
                (ends_on + to_months(months))::DATE + later
                FOR later IN [1, 2, 3, 4]
                IF (ends_on + to_months(months))::DATE + later - to_months(months) > ends_on
            ])
        END AS expires_on
    FROM configured
)
SELECT
    workspace_id,
    kept,
    duration,
    strftime(expires_on, '%Y-%m') AS expires_month,
    sum(rows)::BIGINT AS rows,
    sum(bytes)::BIGINT AS bytes,
    min(expires_on) AS first_expires_on,
    max(expires_on) AS last_expires_on
FROM forecast
GROUP BY workspace_id, kept, duration, strftime(expires_on, '%Y-%m')
ORDER BY
    workspace_id,
    list_position(
        ['conversations', 'facts', 'preferences', 'daily', 'weekly', 'monthly', 'quarterly', 'yearly'], kept
    ),
    expires_month NULLS LAST
