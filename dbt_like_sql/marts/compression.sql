-- How much shorter memory becomes from grain to grain.
-- Row: one workspace, grain and period.
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace.
--   grain - working, daily, weekly, monthly, quarterly or yearly.
--   period - Period; for working memory, the day.
--   agents - Agents with rows in the period.
--   rows - Facts or summaries.
--   characters_in - Characters of their sources; for turns, of the turns themselves.
--   characters_out - Characters of the rows.
--   ratio - characters_out / characters_in; null without sources.
--   tokens_in - Tokens read to make summaries; estimated at 4 bytes each where no model counted them.
--   tokens_out - Tokens written, counted or estimated in the same way.
--   fallbacks - Rows made by rules because a model failed.
SELECT
    workspace_id,
    grain,
    period,
    count(DISTINCT agent_id) AS agents,
    sum(rows)::BIGINT AS rows,
    sum(characters_in)::BIGINT AS characters_in,
    sum(characters_out)::BIGINT AS characters_out,
    sum(characters_out) / nullif(sum(characters_in), 0)::DOUBLE AS ratio,
    sum(tokens_in)::BIGINT AS tokens_in,
    sum(tokens_out)::BIGINT AS tokens_out,
    sum(fallbacks)::BIGINT AS fallbacks
FROM memory_by_period
WHERE rows > 0
GROUP BY workspace_id, grain, period
ORDER BY workspace_id, list_position(['working', 'daily', 'weekly', 'monthly', 'quarterly', 'yearly'], grain), period
