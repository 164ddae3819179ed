-- How much each agent remembers at each grain, and how far it was condensed.
-- Row: one agent and grain. Owner: team memory.
-- Columns: rows; characters_in, of what they were made from; characters_out; first_period, last_period.
WITH sources AS (
    SELECT id, characters FROM stg_facts
    UNION ALL
    SELECT id, characters FROM stg_summaries
),
condensed AS (
    SELECT s.id, sum(sources.characters) AS characters_in
    FROM (SELECT id, unnest(source_ids) AS source_id FROM stg_summaries) AS s
    JOIN sources ON sources.id = s.source_id
    GROUP BY s.id
),
memories AS (
    SELECT
        workspace_id, agent_id, 'working' AS grain, period,
        CASE WHEN kind = 'turn' THEN characters ELSE 0 END AS characters_in,
        characters AS characters_out
    FROM stg_facts
    UNION ALL
    SELECT s.workspace_id, s.agent_id, s.grain, s.period, coalesce(c.characters_in, 0), s.characters
    FROM stg_summaries AS s
    LEFT JOIN condensed AS c USING (id)
)
SELECT
    workspace_id,
    agent_id,
    grain,
    count(*) AS rows,
    sum(characters_in)::BIGINT AS characters_in,
    sum(characters_out)::BIGINT AS characters_out,
    min(period) AS first_period,
    max(period) AS last_period
FROM memories
GROUP BY workspace_id, agent_id, grain
ORDER BY workspace_id, agent_id, list_position(['working', 'daily', 'weekly', 'monthly', 'quarterly', 'yearly'], grain)
