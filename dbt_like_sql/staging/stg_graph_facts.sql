-- Facts of the graphs, those too that have ended: one row a fact and the time that it held.
SELECT *
FROM graph_facts
