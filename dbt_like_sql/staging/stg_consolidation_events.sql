-- Changes of durable memories by the daily consolidation, with reasons.
-- Row: one event.
-- Owner: team:memory
SELECT
    period AS night, id, workspace_id, agent_id, identity, verb, memory_id,
    other_id, changes, reason, turn AS pass, place, event_at
FROM consolidation_events
