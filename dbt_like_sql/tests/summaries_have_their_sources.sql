-- What a summary was made from is kept, or has expired for its agent.
-- Row: one summary and source that neither is.
-- Owner: team:memory
-- Checks: daily_summaries
-- Severity: error
WITH cited AS (
    SELECT id, workspace_id, agent_id, unnest(source_ids) AS source_id
    FROM stg_summaries
),
present AS (
    SELECT id FROM stg_facts
    UNION ALL
    SELECT id FROM stg_summaries
),
marks AS (
    SELECT
        workspace_id, agent_id,
        CASE WHEN kept IN ('conversations', 'facts', 'preferences') THEN 'working' ELSE kept END AS grain,
        max(through) AS through
    FROM stg_expirations
    GROUP BY ALL
)
SELECT c.workspace_id, c.agent_id, c.id, c.source_id
FROM cited AS c
ANTI JOIN present AS p ON p.id = c.source_id
LEFT JOIN marks AS m
    ON m.workspace_id = c.workspace_id AND m.agent_id = c.agent_id AND m.grain = split_part(c.source_id, ':', 1)
WHERE split_part(c.source_id, ':', 2) > coalesce(m.through, '')
ORDER BY c.workspace_id, c.agent_id, c.id, c.source_id
