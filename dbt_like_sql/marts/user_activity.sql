-- Activity, memory and cost of each user and group, and of each agent's own memory. For operators.
-- Row: one agent and identity.
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace.
--   agent_id - Agent.
--   identity - User or group whose memory it is, such as user:u17; empty for the agent's own.
--   user_id - User whose memory it is; null for a group and for the agent's own.
--   users - Members of a group, sorted; empty for others.
--   first_at - Time (UTC) of the first message, edit or event; null if only model requests are left.
--   last_at - Time (UTC) of the last message, edit or event.
--   messages - Number of messages.
--   facts - Number of facts, including turns.
--   summaries - Number of summaries.
--   memories - Number of active durable memories.
--   bytes - Bytes of the text of messages, facts and summaries, in UTF-8.
--   calls - Number of model requests; a request for several identities counts for the first of them.
--   tokens_in - Tokens read, as counted by the provider.
--   tokens_out - Tokens written, as counted by the provider.
--   cost_usd - Cost in US dollars of the requests with a known price.
WITH held AS (
    SELECT
        workspace_id, agent_id, identity, sum(messages) AS messages, sum(rows) FILTER (grain = 'working') AS facts,
        sum(rows) FILTER (grain <> 'working') AS summaries, sum(bytes) AS bytes
    FROM memory_by_period
    GROUP BY workspace_id, agent_id, identity
),
remembered AS (
    SELECT workspace_id, agent_id, identity, sum(memories) FILTER (status = 'active') AS memories
    FROM memory_inventory
    GROUP BY workspace_id, agent_id, identity
),
costs AS (
    SELECT
        workspace_id, agent_id, identity, sum(calls) AS calls, sum(tokens_in) AS tokens_in,
        sum(tokens_out) AS tokens_out, sum(cost_usd) AS cost_usd
    FROM model_cost
    GROUP BY workspace_id, agent_id, identity
),
known AS (
    SELECT workspace_id, agent_id, identity FROM stg_scopes
    UNION
    SELECT workspace_id, agent_id, identity FROM costs
)
SELECT
    k.workspace_id,
    k.agent_id,
    k.identity,
    CASE WHEN starts_with(k.identity, 'user:') THEN substr(k.identity, length('user:') + 1) END AS user_id,
    coalesce(s.users, []) AS users,
    s.first_at,
    s.last_at,
    coalesce(h.messages, 0)::BIGINT AS messages,
    coalesce(h.facts, 0)::BIGINT AS facts,
    coalesce(h.summaries, 0)::BIGINT AS summaries,
    coalesce(r.memories, 0)::BIGINT AS memories,
    coalesce(h.bytes, 0)::BIGINT AS bytes,
    coalesce(c.calls, 0)::BIGINT AS calls,
    coalesce(c.tokens_in, 0)::BIGINT AS tokens_in,
    coalesce(c.tokens_out, 0)::BIGINT AS tokens_out,
    round(coalesce(c.cost_usd, 0), 9)::DOUBLE AS cost_usd
FROM known AS k
LEFT JOIN stg_scopes AS s
    ON s.workspace_id = k.workspace_id AND s.agent_id = k.agent_id AND s.identity = k.identity
LEFT JOIN held AS h ON h.workspace_id = k.workspace_id AND h.agent_id = k.agent_id AND h.identity = k.identity
LEFT JOIN remembered AS r ON r.workspace_id = k.workspace_id AND r.agent_id = k.agent_id AND r.identity = k.identity
LEFT JOIN costs AS c ON c.workspace_id = k.workspace_id AND c.agent_id = k.agent_id AND c.identity = k.identity
ORDER BY k.workspace_id, k.agent_id, k.identity
