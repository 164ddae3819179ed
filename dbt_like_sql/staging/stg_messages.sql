-- One row a message, as agents wrote it.
SELECT id, period, workspace_id, agent_id, conversation_id, user_id, role, name, content, length(content) AS characters, sent_at
FROM messages
