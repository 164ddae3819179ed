-- Changes to durable memories, month by month: by conversations, by agents themselves, and by consolidation.
-- Row: one month, agent, maker and verb.
-- Owner: team:memory
-- Columns:
--   month - Month, such as 2024-01. Of consolidation in the deployment's time zone, else in UTC.
--   workspace_id - Workspace.
--   agent_id - Agent.
--   made_by - conversation, agent or upkeep (consolidation).
--   verb - REMEMBER, UPDATE, FORGET, BOOST, …; of consolidation PROMOTE, MERGE, SUPERSEDE, COOL, ARCHIVE, HEAT, ….
--   events - Number of changes.
--   memories - Number of changed memories.
--   days - Number of days with changes.
WITH events AS (
    SELECT
        left(period, 7) AS month, left(period, 10) AS day, workspace_id, agent_id,
        CASE WHEN is_edit THEN 'agent' ELSE 'conversation' END AS made_by, verb, memory_id
    FROM stg_memory_events
    UNION ALL
    SELECT left(night, 7) AS month, night AS day, workspace_id, agent_id, 'upkeep' AS made_by, verb, memory_id
    FROM stg_upkeep_events
)
SELECT
    month,
    workspace_id,
    agent_id,
    made_by,
    verb,
    count(*) AS events,
    count(DISTINCT memory_id) AS memories,
    count(DISTINCT day) AS days
FROM events
GROUP BY month, workspace_id, agent_id, made_by, verb
ORDER BY month, workspace_id, agent_id, made_by, verb
