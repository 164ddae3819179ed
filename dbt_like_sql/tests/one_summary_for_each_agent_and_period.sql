-- An agent has at most one summary of a period. Returns those that have more.
SELECT workspace_id, agent_id, grain, period, count(*) AS summaries
FROM stg_summaries
GROUP BY ALL
HAVING count(*) > 1
