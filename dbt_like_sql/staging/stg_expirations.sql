-- How far the memory of agents has expired: everything up to and including `through` is deleted.
-- Row: one agent and retention class with expired rows.
-- Owner: team:memory
SELECT workspace_id, agent_id, kept, through, "at" AS expired_at
FROM expirations
