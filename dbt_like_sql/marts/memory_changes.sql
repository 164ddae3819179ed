-- Changes of durable memories by conversations, agents and consolidation, by month.
-- Row: one month, agent and identity, origin and verb.
-- Owner: team:memory
-- Columns:
--   month - Month, such as 2024-01: in UTC, or for consolidation in the deployment's time zone.
--   workspace_id - Workspace.
--   agent_id - Agent.
--   identity - User or group whose memory it is, such as user:u17; empty for the agent's own.
--   made_by - conversation, agent or consolidation.
--   verb - REMEMBER, UPDATE, FORGET, BOOST, …; by consolidation PROMOTE, MERGE, SUPERSEDE, COOL, ARCHIVE, HEAT, ….
--   events - Number of events.
--   memories - Number of changed memories.
--   days - Number of days with such events.
WITH events AS (
    SELECT
        left(period, 7) AS month, left(period, 10) AS day, workspace_id, agent_id, identity,
        CASE WHEN is_edit THEN 'agent' ELSE 'conversation' END AS made_by, verb, memory_id
    FROM stg_memory_events
    UNION ALL
    SELECT left(night, 7) AS month, night AS day, workspace_id, agent_id, identity, 'consolidation' AS made_by, verb,
        memory_id
    FROM stg_consolidation_events
)
SELECT
    month,
    workspace_id,
    agent_id,
    identity,
    made_by,
    verb,
    count(*) AS events,
    count(DISTINCT memory_id) AS memories,
    count(DISTINCT day) AS days
FROM events
GROUP BY month, workspace_id, agent_id, identity, made_by, verb
ORDER BY month, workspace_id, agent_id, identity, made_by, verb
