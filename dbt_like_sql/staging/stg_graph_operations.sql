-- Operations on the agents' knowledge graphs: inserts, updates and deletes.
-- Row: one operation.
-- Owner: team:memory
SELECT
    period, id, workspace_id, agent_id, identity, verb, subject_id, subject,
    predicate, object, confidence, weight,
    evidence_id, is_edit, conversation_id, turn, place, event_at
FROM graph_operations
