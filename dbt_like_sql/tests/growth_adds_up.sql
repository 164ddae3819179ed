-- memory_growth adds up to the rows and characters of the tables. A difference means that a month of an incremental mart
-- was not rebuilt; `memory-pipeline sql memory_growth --build --full` rebuilds all parts.
-- Row: one agent, identity and grain with a difference.
-- Owner: team:memory
-- Checks: memory_growth
-- Severity: error
WITH held AS (
    SELECT workspace_id, agent_id, identity, 'working' AS grain, characters FROM stg_facts
    UNION ALL
    SELECT workspace_id, agent_id, identity, grain, characters FROM stg_summaries
),
counted AS (
    SELECT workspace_id, agent_id, identity, grain, count(*) AS rows, sum(characters) AS characters
    FROM held
    GROUP BY workspace_id, agent_id, identity, grain
)
SELECT
    coalesce(c.workspace_id, g.workspace_id) AS workspace_id,
    coalesce(c.agent_id, g.agent_id) AS agent_id,
    coalesce(c.identity, g.identity) AS identity,
    coalesce(c.grain, g.grain) AS grain,
    c.rows,
    g.rows AS rows_in_growth,
    c.characters,
    g.characters_out AS characters_in_growth
FROM counted AS c
FULL JOIN memory_growth AS g
    ON g.workspace_id = c.workspace_id AND g.agent_id = c.agent_id AND g.identity = c.identity AND g.grain = c.grain
WHERE c.rows IS DISTINCT FROM g.rows OR c.characters IS DISTINCT FROM g.characters_out
ORDER BY workspace_id, agent_id, identity, grain
