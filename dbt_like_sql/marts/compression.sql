-- Compression from grain to grain, by period: characters of the memory divided by characters of its sources.
-- Row: one workspace, grain and period.
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace.
--   grain - working, daily, weekly, monthly, quarterly or yearly.
--   period - Period; for working memory, the day.
--   agents - Number of agents with memory of the period.
--   rows - Number of facts or summaries.
--   characters_in - Characters of the sources; a turn is its own source.
--   characters_out - Characters of the rows.
--   ratio - characters_out divided by characters_in; 0.1 means a tenth. Null if characters_in is 0.
--   tokens_in - Tokens read to create summaries; estimated at 4 bytes per token if no model counted.
--   tokens_out - Tokens written, counted like tokens_in.
--   fallbacks - Rows created by rules because the model failed.
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
