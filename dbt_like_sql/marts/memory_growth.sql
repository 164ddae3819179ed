-- Size of each agent's memory at each grain, by user and group, and of its sources.
-- Row: one agent, identity and grain.
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace.
--   agent_id - Agent.
--   identity - User or group whose memory it is, such as user:u17; empty for the agent's own.
--   grain - working, daily, weekly, monthly, quarterly or yearly.
--   rows - Number of facts (working memory) or summaries.
--   characters_in - Characters of the sources. A turn (a message, verbatim) is its own source.
--   characters_out - Characters of the rows.
--   first_period - First period with rows; for working memory, the first day.
--   last_period - Last period with rows; for working memory, the last day.
SELECT
    workspace_id,
    agent_id,
    identity,
    grain,
    sum(rows)::BIGINT AS rows,
    sum(characters_in)::BIGINT AS characters_in,
    sum(characters_out)::BIGINT AS characters_out,
    min(period) AS first_period,
    max(period) AS last_period
FROM memory_by_period
WHERE rows > 0
GROUP BY workspace_id, agent_id, identity, grain
ORDER BY
    workspace_id, agent_id, identity,
    list_position(['working', 'daily', 'weekly', 'monthly', 'quarterly', 'yearly'], grain)
