-- The messages that a fact rests on are kept, or have expired for its agent.
-- Row: one fact and message that neither is.
-- Owner: team:memory
-- Checks: working_facts
-- Severity: error
WITH cited AS (
    SELECT id, workspace_id, agent_id, unnest(message_ids) AS message_id
    FROM stg_facts
)
SELECT c.workspace_id, c.agent_id, c.id, c.message_id
FROM cited AS c
ANTI JOIN stg_messages AS m ON m.id = c.message_id
LEFT JOIN stg_expirations AS e
    ON e.workspace_id = c.workspace_id AND e.agent_id = c.agent_id AND e.kept = 'conversations'
WHERE split_part(c.message_id, ':', 2) > coalesce(e.through, '')
ORDER BY c.workspace_id, c.agent_id, c.id, c.message_id
