-- Reads and changes of the memory of another agent.
-- Row: one call.
-- Owner: team:memory
SELECT
    id, called_at, day, workspace_id, agent_id, identity, asking_agent, operation, outcome, results, result_ids, grant_ids,
    level
FROM access_log
WHERE operation <> 'use'
