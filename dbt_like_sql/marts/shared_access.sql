-- Which agent read or changed the memory of which other agent, by day, and what was denied.
-- Row: one day, workspace, agent, identity, asking agent, operation, outcome and level.
-- Owner: team:memory
-- Columns:
--   day - Day (UTC), such as 2024-01-15.
--   workspace_id - Workspace.
--   agent_id - Agent whose memory it is.
--   identity - User whose memory it is too, such as user:u17; empty for the agent's own.
--   asking_agent - Agent that read or changed it.
--   operation - Method, such as search_memory, recall, graph.facts_about or remember.
--   outcome - ok, or denied.
--   level - Highest level of the grants that allowed it; null if it was denied.
--   grant_ids - Grants that allowed it, sorted.
--   calls - Number of calls.
--   results - Number of results.
--   last_at - Time of the last call (UTC).
SELECT
    day, workspace_id, agent_id, identity, asking_agent, operation, outcome, level,
    list_sort(list_distinct(flatten(list(grant_ids)))) AS grant_ids,
    count(*) AS calls,
    sum(results)::BIGINT AS results,
    max(called_at) AS last_at
FROM stg_access_log
GROUP BY day, workspace_id, agent_id, identity, asking_agent, operation, outcome, level
ORDER BY day, workspace_id, agent_id, identity, asking_agent, operation, outcome, level
