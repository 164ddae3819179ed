-- Names of people, places and things in facts, by month.
-- Row: one workspace, entity and month.
-- Owner: team:memory
-- Incremental: month
-- Columns:
--   month - Month in the deployment's time zone, such as 2024-01.
--   workspace_id - Workspace.
--   entity - Name of a person, place or thing, as written.
--   mentions - Number of messages with the name.
--   facts - Number of facts with the name, including turns.
--   agents - Number of agents with the name in their conversations.
--   first_mentioned_at - Time (UTC) of the first mention in the month.
--   last_mentioned_at - Time (UTC) of the last mention in the month.
WITH named AS (
    SELECT
        p.month, f.workspace_id, f.agent_id, f.message_ids[1] AS message_id, f.event_at, unnest(f.entities) AS entity
    FROM stg_facts AS f
    JOIN stg_periods AS p ON p.grain = 'working' AND p.period = f.period
)
SELECT
    month,
    workspace_id,
    entity,
    count(DISTINCT message_id) AS mentions,
    count(*) AS facts,
    count(DISTINCT agent_id) AS agents,
    min(event_at) AS first_mentioned_at,
    max(event_at) AS last_mentioned_at
FROM named
GROUP BY month, workspace_id, entity
ORDER BY month, workspace_id, mentions DESC, entity
