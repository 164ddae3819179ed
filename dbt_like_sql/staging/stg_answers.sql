-- One row for each question that a model has answered, kept so that nobody pays for it twice.
SELECT key, grain, period, workspace_id, agent_id, purpose, model, prompt_version, tokens_in, tokens_out, cost, length(answer) AS characters
FROM answers
