-- Changes of durable memories by conversations and agents.
-- Row: one event.
-- Owner: team:memory
SELECT
    period, id, workspace_id, agent_id, identity, verb, memory_id, other_id,
    changes, editor, reason, evidence, conversation_id, turn, place, event_at, is_edit
FROM memory_events
