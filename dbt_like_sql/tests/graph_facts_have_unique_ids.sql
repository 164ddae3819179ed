-- No two rows of graph_facts have the same id.
-- Row: one id that more than one fact of the graph has.
-- Owner: team:memory
-- Checks: graph_facts
-- Severity: error
SELECT id, count(*) AS rows
FROM stg_graph_facts
GROUP BY id
HAVING count(*) > 1
ORDER BY id
