-- What the nightly upkeep did to durable memories, and why.
-- Row: one event of a night.
-- Owner: team:memory
SELECT
    owner, night, id, workspace_id, agent_id, verb, memory_id, other_id, changes, reason, turn AS pass, place, event_at
FROM upkeep_events
