-- Operations on what agents know: one row an operation.
SELECT *
FROM graph_operations
