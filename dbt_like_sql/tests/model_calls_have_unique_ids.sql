-- No two rows of model_calls have the same id.
-- Row: one id that more than one line of a call has.
-- Owner: team:memory
-- Checks: model_cost
-- Severity: error
SELECT id, count(*) AS rows
FROM stg_model_calls
GROUP BY id
HAVING count(*) > 1
ORDER BY id
