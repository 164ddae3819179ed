-- The ids of model_calls are unique.
-- Row: one id with several rows.
-- Owner: team:memory
-- Checks: model_cost
-- Severity: error
SELECT id, count(*) AS rows
FROM stg_model_calls
GROUP BY id
HAVING count(*) > 1
ORDER BY id
