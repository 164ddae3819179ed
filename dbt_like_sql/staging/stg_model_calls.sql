-- One row for each request that was sent to a model; of one that served several agents or periods, one row for each.
SELECT id, request_id, key, called_at, called_at::DATE AS day, workspace_id, agent_id, purpose, grain, period, model, prompt_version, texts, tokens_in, tokens_out, cost, seconds, outcome
FROM model_calls
