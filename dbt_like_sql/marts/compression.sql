-- How much shorter memory becomes from grain to grain, over time.
-- Row: one workspace, grain and period.
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace.
--   grain - working, daily, weekly, monthly, quarterly or yearly.
--   period - The period; for working memory, the day.
--   agents - Agents that remember something of it.
--   rows - Facts or summaries.
--   characters_in - Of what they were made from: of turns, the turns themselves.
--   characters_out - Of their own.
--   ratio - characters_out by characters_in, 0.1 for a tenth; none without anything to compare with.
--   tokens_in - Read to make summaries; estimated at 4 bytes each where no model counted.
--   tokens_out - Written; likewise.
--   fallbacks - Rows that rules made, because a model did not help.
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
