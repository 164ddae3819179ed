-- What was done to durable memories, month by month: by conversations, by agents themselves, and by the upkeep.
-- Row: one month, agent, maker and verb.
-- Owner: team:memory
-- Columns:
--   month - As 2024-01: of a night that of its day, in the deployment's zone, of all else that of the hour, in UTC.
--   workspace_id - Workspace.
--   agent_id - Agent.
--   made_by - conversation, agent or upkeep.
--   verb - REMEMBER, UPDATE, FORGET, BOOST, …; of the upkeep PROMOTE, MERGE, SUPERSEDE, COOL, ARCHIVE, HEAT, ….
--   events - How often it was done.
--   memories - To how many memories.
--   days - On how many days, or in how many nights.
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
