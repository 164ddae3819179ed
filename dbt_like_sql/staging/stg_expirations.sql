-- Last expired period of each agent and retention class.
-- Row: one retention class of an agent with expired memory.
-- Owner: team:memory
SELECT workspace_id, agent_id, kept, through, "at" AS expired_at
FROM expirations
