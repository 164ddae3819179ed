-- Durable memories of agents.
-- Row: one version of a durable memory; older ones are history.
-- Owner: team:memory
SELECT
    id, memory_id, version, is_newest, workspace_id, agent_id, identity,
    kind, title, hook, content,
    length(content) AS characters, strlen(content) AS bytes, subject, predicate, object, user_id, key, value,
    importance, confidence, decay_rate, access_count, last_accessed_at, is_point_in_time, memory_class, outcome_success,
    source_type, context,
    temperature, status,
    status_reason,
    superseded_by, merged_ids, source_ids, conversation_ids, tags, editor, event_id, created_at, updated_at, changed_at,
    reviewed_at, embed_model
FROM memories
