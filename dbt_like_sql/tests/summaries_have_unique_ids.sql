-- No two rows of summaries have the same id.
-- Row: one id that more than one summary has.
-- Owner: team:memory
-- Checks: daily_summaries
-- Severity: error
SELECT id, count(*) AS rows
FROM stg_summaries
GROUP BY id
HAVING count(*) > 1
ORDER BY id
