-- Agents, users and groups of the lake.
-- Row: one agent's own memory, or that of a user or group, with the times of its first and last message, edit or event.
-- Owner: team:memory
SELECT scope, workspace_id, agent_id, identity, users, first_at, last_at
FROM scopes
