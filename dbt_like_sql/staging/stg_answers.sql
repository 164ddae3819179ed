-- What models have answered, kept so that nobody pays for it twice.
-- Row: one question.
-- Owner: team:memory
SELECT
    key, grain, period, workspace_id, agent_id, purpose, model, prompt_version, tokens_in, tokens_out, cost,
    length(answer) AS characters
FROM answers
