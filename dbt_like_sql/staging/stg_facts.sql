-- One row a fact of working memory.
SELECT id, period, workspace_id, agent_id, kind, speaker, content, length(content) AS characters, entities, importance, conversation_id, message_ids, event_at, mentioned_at, extraction_method, model, prompt_version, fallback, embed_model, len(operations) AS operations
FROM facts
