-- Durable memories of each agent, user and group, counted by kind, status and temperature.
-- Row: one agent and identity, kind, status and temperature.
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace.
--   agent_id - Agent.
--   identity - User or group whose memory it is, such as user:u17; empty for the agent's own.
--   kind - fact, rule, instruction, observation, preference, procedure, reflection, decision, plan, tool_output
--     or conversation_summary.
--   status - active, superseded, deprecated or archived.
--   temperature - hot (in the hot index), warm (recalled) or cold (only in archive searches).
--   memories - Number of memories.
--   versions - Number of their versions, including the newest ones.
--   characters - Characters of the newest versions.
--   accesses - Number of accesses.
--   mean_importance - Mean importance as set, 0 to 1.
--   mean_confidence - Mean confidence, 0 to 1.
--   as_of - Time (UTC) of the last event of any memory of the agent.
--   mean_age_days - Mean time in days from the last statement, update or confirmation until as_of.
--   without_vector - Memories without an embedding, which only full-text search finds.
WITH held AS MATERIALIZED (
    SELECT
        memory_id, is_newest, workspace_id, agent_id, identity, kind, status, temperature, characters,
        access_count, importance, confidence, updated_at, changed_at, last_accessed_at, reviewed_at, embed_model
    FROM stg_memories
),
counted AS (
    SELECT workspace_id, agent_id, memory_id, count(*) AS versions
    FROM held
    GROUP BY workspace_id, agent_id, memory_id
),
agents AS (
    SELECT
        workspace_id, agent_id,
        max(greatest(changed_at, updated_at, last_accessed_at, reviewed_at)) AS as_of
    FROM held
    GROUP BY workspace_id, agent_id
)
SELECT
    h.workspace_id,
    h.agent_id,
    h.identity,
    h.kind,
    h.status,
    h.temperature,
    count(*) AS memories,
    sum(c.versions)::BIGINT AS versions,
    sum(h.characters)::BIGINT AS characters,
    sum(h.access_count)::BIGINT AS accesses,
    round(avg(h.importance), 6)::DOUBLE AS mean_importance,
    round(avg(h.confidence), 6)::DOUBLE AS mean_confidence,
    a.as_of,
    round(avg(epoch(a.as_of) - epoch(h.updated_at)) / 86400, 6)::DOUBLE AS mean_age_days,
    count(*) FILTER (h.embed_model IS NULL) AS without_vector
FROM held AS h
JOIN counted AS c ON c.workspace_id = h.workspace_id AND c.agent_id = h.agent_id AND c.memory_id = h.memory_id
JOIN agents AS a ON a.workspace_id = h.workspace_id AND a.agent_id = h.agent_id
WHERE h.is_newest
GROUP BY h.workspace_id, h.agent_id, h.identity, h.kind, h.status, h.temperature, a.as_of
ORDER BY
    h.workspace_id, h.agent_id, h.identity, h.kind,
    list_position(['active', 'superseded', 'deprecated', 'archived'], h.status),
    list_position(['hot', 'warm', 'cold'], h.temperature)
