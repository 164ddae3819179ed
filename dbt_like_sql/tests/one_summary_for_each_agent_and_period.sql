-- An agent, user or group has at most one summary of a period.
-- Row: one agent, identity and period with several summaries.
-- Owner: team:memory
-- Checks: daily_summaries
-- Severity: error
SELECT workspace_id, agent_id, identity, grain, period, count(*) AS summaries
FROM stg_summaries
GROUP BY workspace_id, agent_id, identity, grain, period
HAVING count(*) > 1
ORDER BY workspace_id, agent_id, identity, grain, period
