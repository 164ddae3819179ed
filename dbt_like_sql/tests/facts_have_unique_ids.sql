-- No two rows of facts have the same id.
-- Row: one id that more than one fact has.
-- Owner: team:memory
-- Checks: working_facts
-- Severity: error
SELECT id, count(*) AS rows
FROM stg_facts
GROUP BY id
HAVING count(*) > 1
ORDER BY id
