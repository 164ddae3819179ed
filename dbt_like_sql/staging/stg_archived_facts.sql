-- Archived facts: expired rows that retention has moved to the archive, with the columns of stg_facts.
-- Row: one fact.
-- Owner: team:memory
SELECT
    id, period, workspace_id, agent_id, identity, kind,
    CASE
        WHEN kind = 'turn' THEN 'conversations'
        WHEN kind IN ('preference', 'instruction') THEN 'preferences'
        ELSE 'facts'
    END AS kept,
    speaker, content, length(content) AS characters, strlen(content) AS bytes, entities, importance, conversation_id,
    message_ids, event_at, mentioned_at, extraction_method, model, prompt_version, fallback, embed_model,
    len(operations) AS operations
FROM archived_facts
