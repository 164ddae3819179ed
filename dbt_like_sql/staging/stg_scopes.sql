-- Agents of the lake.
-- Row: one agent, with the times of its first and last message, edit or event.
-- Owner: team:memory
SELECT workspace_id || '~' || agent_id AS owner, scope, workspace_id, agent_id, first_at, last_at
FROM scopes
