-- Answers of models, kept to avoid repeated requests.
-- Row: one answer.
-- Owner: team:memory
SELECT
    key, grain, period, workspace_id, agent_id, identity, purpose, model, prompt_version, tokens_in, tokens_out, cost,
    length(answer) AS characters
FROM answers
