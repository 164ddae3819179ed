-- Stored model answers, so that no request is paid for twice.
-- Row: one request.
-- Owner: team:memory
SELECT
    key, grain, period, workspace_id, agent_id, purpose, model, prompt_version, tokens_in, tokens_out, cost,
    length(answer) AS characters
FROM answers
