-- What a fact of the graph rests on, messages or edits, is kept, or has expired for its agent.
-- Row: one fact of the graph and piece of evidence that neither is.
-- Owner: team:memory
-- Checks: graph_facts
-- Severity: error
WITH cited AS (
    SELECT id, workspace_id, agent_id, unnest(evidence) AS evidence_id
    FROM stg_graph_facts
),
present AS (
    SELECT id FROM stg_messages
    UNION ALL
    SELECT DISTINCT evidence_id AS id FROM stg_graph_operations WHERE is_edit
)
SELECT c.workspace_id, c.agent_id, c.id, c.evidence_id
FROM cited AS c
ANTI JOIN present AS p ON p.id = c.evidence_id
LEFT JOIN stg_expirations AS e
    ON e.workspace_id = c.workspace_id AND e.agent_id = c.agent_id AND e.kept = 'conversations'
WHERE split_part(c.evidence_id, ':', 2) > coalesce(e.through, '')
ORDER BY c.workspace_id, c.agent_id, c.id, c.evidence_id
