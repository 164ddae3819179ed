-- How far agents' memory has expired: nothing up to and including `through` is kept.
-- Row: one class of an agent's memory of which something has expired.
-- Owner: team:memory
SELECT workspace_id, agent_id, kept, through, "at" AS expired_at
FROM expirations
