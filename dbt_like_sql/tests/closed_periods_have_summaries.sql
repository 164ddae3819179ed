-- A day after a period has closed, all agents with material have a summary of it. What waits for a model's budget is
-- left out: the ledger says so.
-- Row: one workspace and period with agents that have none.
-- Owner: team:memory
-- Checks: coverage
-- Severity: error
SELECT c.workspace_id, c.grain, c.period, c.closes_at, c.agents_missing
FROM coverage AS c
CROSS JOIN stg_clock AS t
LEFT JOIN stg_ledger AS l ON l.asset = c.grain || '_summaries' AND l.period = c.period
WHERE c.agents_missing > 0 AND c.closes_at + INTERVAL 1 DAY <= t.now AND coalesce(l.unfinished, 0) = 0
ORDER BY c.closes_at, c.workspace_id
