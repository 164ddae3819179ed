-- Each durable memory has one newest version, and its versions are numbered from 1 without gaps.
-- Row: one memory that violates this.
-- Owner: team:memory
-- Checks: durable_memories
-- Severity: error
SELECT workspace_id, agent_id, identity, memory_id AS id, count(*) FILTER (is_newest) AS newest, count(*) AS versions
FROM stg_memories
GROUP BY workspace_id, agent_id, identity, memory_id
HAVING
    count(*) FILTER (is_newest) <> 1
    OR max(version) FILTER (is_newest) <> count(*)
    OR count(DISTINCT version) <> count(*)
    OR min(version) <> 1
ORDER BY workspace_id, agent_id, identity, id
