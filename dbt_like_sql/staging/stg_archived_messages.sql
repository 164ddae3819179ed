-- Archived messages: expired rows that retention has moved to the archive, with the columns of stg_messages.
-- Row: one message.
-- Owner: team:memory
SELECT
    id, period, workspace_id, agent_id, identity, conversation_id, user_id, role, name, content,
    length(content) AS characters, strlen(content) AS bytes, sent_at
FROM archived_messages
