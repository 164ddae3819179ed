-- Archived summaries: expired rows that retention has moved to the archive, with the columns of stg_summaries.
-- Row: one summary of one agent and period.
-- Owner: team:memory
SELECT
    id, grain, period, workspace_id, agent_id, identity, period_start, period_end, content,
    length(content) AS characters, strlen(content) AS bytes, len(key_points) AS points, source_ids, tokens_in,
    tokens_out, cost, summary_method, model,
    prompt_version, fallback, code_version, embed_model
FROM archived_summaries
