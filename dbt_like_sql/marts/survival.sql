-- Share of the sources that summaries cite in at least one key point.
-- Row: one workspace, summary grain and period.
-- Owner: team:memory
-- Incremental: month
-- Columns:
--   month - Month of the period's first day, such as 2024-01.
--   workspace_id - Workspace.
--   grain - daily, weekly, monthly, quarterly or yearly.
--   period - Period.
--   agents - Number of agents with a summary of the period.
--   offered - Number of sources: facts for a day, otherwise key points of finer summaries that have not expired.
--   cited - Number of sources cited by a key point.
--   share_cited - cited divided by offered, 0 to 1; null if offered is 0.
WITH summaries AS MATERIALIZED (
    SELECT id, workspace_id, agent_id, grain, period, source_ids
    FROM stg_summaries
),
points AS MATERIALIZED (
    SELECT id, summary_id, source_ids
    FROM stg_points
),
offered AS (
    SELECT id AS summary_id, unnest(source_ids) AS id
    FROM summaries
    WHERE grain = 'daily'
    UNION ALL
    SELECT made.id AS summary_id, finer.id
    FROM (SELECT id, unnest(source_ids) AS source_id FROM summaries WHERE grain <> 'daily') AS made
    JOIN points AS finer ON finer.summary_id = made.source_id
),
cited AS (
    SELECT DISTINCT summary_id, unnest(source_ids) AS id
    FROM points
),
counted AS (
    SELECT o.summary_id, count(*) AS offered, count(c.id) AS cited
    FROM offered AS o
    LEFT JOIN cited AS c ON c.summary_id = o.summary_id AND c.id = o.id
    GROUP BY o.summary_id
)
SELECT
    p.month,
    s.workspace_id,
    s.grain,
    s.period,
    count(DISTINCT s.agent_id) AS agents,
    coalesce(sum(n.offered), 0)::BIGINT AS offered,
    coalesce(sum(n.cited), 0)::BIGINT AS cited,
    (sum(n.cited) / sum(n.offered))::DOUBLE AS share_cited
FROM summaries AS s
JOIN stg_periods AS p ON p.grain = s.grain AND p.period = s.period
LEFT JOIN counted AS n ON n.summary_id = s.id
GROUP BY p.month, s.workspace_id, s.grain, s.period
ORDER BY s.workspace_id, list_position(['daily', 'weekly', 'monthly', 'quarterly', 'yearly'], s.grain), s.period
