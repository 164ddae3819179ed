-- What models were handed by reads of memory.
-- Row: one context, injection or recall.
-- Owner: team:memory
SELECT
    id, called_at, day, workspace_id, agent_id, identity, asking_agent, operation, as_of, conversation_id,
    len(items) AS items, model, tokens_in, tokens_out, cost
FROM read_receipts
