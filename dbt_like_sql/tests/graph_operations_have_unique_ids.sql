-- No two rows of graph_operations have the same id.
-- Row: one id that more than one operation has.
-- Owner: team:memory
-- Checks: graph_facts
-- Severity: error
SELECT id, count(*) AS rows
FROM stg_graph_operations
GROUP BY id
HAVING count(*) > 1
ORDER BY id
