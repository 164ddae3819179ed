-- Progress of consolidation of durable memories.
-- Row: one agent.
-- Owner: team:memory
SELECT workspace_id, agent_id, identity, id AS scope, through, due, len(days) AS days, method, troubles
FROM consolidation
