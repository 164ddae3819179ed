-- Memory of each agent, user and group by period, with its sources and cost. Other marts aggregate it.
-- Row: one agent and identity, retention class and period. Hours of working memory are added to their day.
-- Owner: team:memory
-- Incremental: month
-- Columns:
--   month - Month of the period's first day, such as 2024-01.
--   workspace_id - Workspace.
--   agent_id - Agent.
--   identity - User or group whose memory it is, such as user:u17; empty for the agent's own.
--   grain - working, daily, weekly, monthly, quarterly or yearly.
--   kept - Retention class: conversations (turns), facts or preferences for working memory, otherwise the grain.
--   period - Period; for working memory, the day.
--   material_for - Period of the next coarser grain that it is a source of; null for a year.
--   ends_on - Day after the last day, in the deployment's time zone.
--   rows - Number of facts or summaries.
--   messages - Number of messages. Their retention class is conversations.
--   bytes - Bytes of the text of rows and messages, in UTF-8.
--   characters_in - Characters of the sources of the rows; a turn is its own source.
--   characters_out - Characters of the rows.
--   tokens_in - Tokens read to create summaries; estimated at 4 bytes per token if no model counted.
--   tokens_out - Tokens written, counted like tokens_in.
--   cost_usd - Cost in US dollars of the summaries with a known price.
--   fallbacks - Rows created by rules because the model failed.
--   without_vector - Rows without an embedding, which only full-text search finds.
WITH days AS (
    SELECT hours.period AS hour, days.month, days.period, days.ends_on
    FROM stg_periods AS hours
    JOIN stg_periods AS days ON days.grain = 'daily' AND days.period = hours.parent
    WHERE hours.grain = 'working'
),
-- Materialized, so that each of the many files is opened once.
facts AS MATERIALIZED (
    SELECT id, period, workspace_id, agent_id, identity, kind, kept, characters, bytes, fallback, embed_model
    FROM stg_facts
),
summaries AS MATERIALIZED (
    SELECT
        id, grain, period, workspace_id, agent_id, identity, characters, bytes, tokens_in, tokens_out, cost, fallback,
        embed_model, source_ids
    FROM stg_summaries
),
sources AS (
    SELECT id, characters FROM facts
    UNION ALL
    SELECT id, characters FROM summaries
),
condensed AS (
    SELECT made.id, sum(sources.characters) AS characters_in
    FROM (SELECT id, unnest(source_ids) AS source_id FROM summaries) AS made
    JOIN sources ON sources.id = made.source_id
    GROUP BY made.id
),
memories AS (
    SELECT
        d.month, f.workspace_id, f.agent_id, f.identity, 'working' AS grain, f.kept, d.period,
        d.period AS material_for, d.ends_on, 1 AS rows, 0 AS messages, f.bytes,
        CASE WHEN f.kind = 'turn' THEN f.characters ELSE 0 END AS characters_in,
        f.characters AS characters_out, 0 AS tokens_in, 0 AS tokens_out, NULL::DOUBLE AS cost, f.fallback, f.embed_model
    FROM facts AS f
    JOIN days AS d ON d.hour = f.period
    UNION ALL
    SELECT
        d.month, m.workspace_id, m.agent_id, m.identity, 'working' AS grain, 'conversations' AS kept, d.period,
        d.period AS material_for, d.ends_on, 0 AS rows, 1 AS messages, m.bytes, 0 AS characters_in, 0 AS characters_out,
        0 AS tokens_in, 0 AS tokens_out, NULL::DOUBLE AS cost, NULL AS fallback, '' AS embed_model
    FROM stg_messages AS m
    JOIN days AS d ON d.hour = m.period
    UNION ALL
    SELECT
        p.month, s.workspace_id, s.agent_id, s.identity, s.grain, s.grain AS kept, s.period, p.parent AS material_for,
        p.ends_on,
        1 AS rows, 0 AS messages, s.bytes, coalesce(c.characters_in, 0) AS characters_in,
        s.characters AS characters_out, s.tokens_in, s.tokens_out, s.cost, s.fallback, s.embed_model
    FROM summaries AS s
    JOIN stg_periods AS p ON p.grain = s.grain AND p.period = s.period
    LEFT JOIN condensed AS c ON c.id = s.id
)
SELECT
    month,
    workspace_id,
    agent_id,
    identity,
    grain,
    kept,
    period,
    material_for,
    ends_on,
    sum(rows)::BIGINT AS rows,
    sum(messages)::BIGINT AS messages,
    sum(bytes)::BIGINT AS bytes,
    sum(characters_in)::BIGINT AS characters_in,
    sum(characters_out)::BIGINT AS characters_out,
    sum(tokens_in)::BIGINT AS tokens_in,
    sum(tokens_out)::BIGINT AS tokens_out,
    round(coalesce(sum(cost), 0), 9)::DOUBLE AS cost_usd,
    count(fallback) AS fallbacks,
    count(*) FILTER (embed_model IS NULL) AS without_vector
FROM memories
GROUP BY month, workspace_id, agent_id, identity, grain, kept, period, material_for, ends_on
ORDER BY month, workspace_id, agent_id, identity, grain, kept, period
