-- Share of the agents with material that have a summary of a period. Material is facts of a day, or finer summaries. A
-- period that has just closed has no summaries yet. Each user and group of an agent counts as an agent.
-- Row: one workspace, summary grain and period with material.
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace.
--   grain - daily, weekly, monthly, quarterly or yearly.
--   period - Period.
--   closes_at - Time (UTC) from which the period can be summarized.
--   agents_with_material - Agents that have facts of the day, or finer summaries.
--   agents_with_summary - Those of agents_with_material that have a summary of the period.
--   agents_expired - Those of agents_with_material whose summary has expired.
--   agents_missing - Those of agents_with_material that have no summary and should have one once the period has closed.
--   share_covered - agents_with_summary divided by the agents whose summary has not expired, 0 to 1; null if all have
--     expired.
WITH material AS (
    SELECT DISTINCT
        workspace_id, agent_id, identity, material_for AS period,
        CASE grain
            WHEN 'working' THEN 'daily'
            WHEN 'daily' THEN 'weekly'
            WHEN 'weekly' THEN 'monthly'
            WHEN 'monthly' THEN 'quarterly'
            ELSE 'yearly'
        END AS grain
    FROM memory_by_period
    WHERE rows > 0 AND material_for IS NOT NULL
),
judged AS (
    SELECT
        m.workspace_id, m.grain, m.period, s.agent_id IS NOT NULL AS has_summary,
        s.agent_id IS NULL AND coalesce(m.period <= e.through, FALSE) AS has_expired
    FROM material AS m
    LEFT JOIN memory_by_period AS s
        ON s.workspace_id = m.workspace_id AND s.agent_id = m.agent_id AND s.identity = m.identity
        AND s.grain = m.grain AND s.period = m.period
    LEFT JOIN stg_expirations AS e
        ON e.workspace_id = m.workspace_id AND e.agent_id = m.agent_id AND e.kept = m.grain
)
SELECT
    j.workspace_id,
    j.grain,
    j.period,
    p.closes_at,
    count(*) AS agents_with_material,
    count(*) FILTER (j.has_summary) AS agents_with_summary,
    count(*) FILTER (j.has_expired) AS agents_expired,
    count(*) FILTER (NOT j.has_summary AND NOT j.has_expired) AS agents_missing,
    (count(*) FILTER (j.has_summary) / nullif(count(*) FILTER (NOT j.has_expired), 0))::DOUBLE AS share_covered
FROM judged AS j
JOIN stg_periods AS p ON p.grain = j.grain AND p.period = j.period
GROUP BY j.workspace_id, j.grain, j.period, p.closes_at
ORDER BY j.workspace_id, list_position(['daily', 'weekly', 'monthly', 'quarterly', 'yearly'], j.grain), j.period
