-- Current and past facts of the agents' knowledge graphs.
-- Row: one fact and the time during which it is true.
-- Owner: team:memory
SELECT
    id, workspace_id, agent_id, identity, source_id, source, label,
    target_id, target, confidence, weight, valid_from, valid_to, superseded_by, evidence, conversation_id, updated_at,
    source_hour
FROM graph_facts
