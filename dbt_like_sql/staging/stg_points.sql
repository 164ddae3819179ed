-- The sentences of summaries, and what each rests on.
-- Row: one point of a summary.
-- Owner: team:memory
-- Columns:
--   id - As it is cited: the summary's id, # and the position.
--   summary_id - The summary.
--   grain - Its grain.
--   period - Its period.
--   workspace_id - Workspace that it belongs to.
--   agent_id - Agent that it belongs to.
--   position - From 0, in the summary.
--   characters - Of the sentence.
--   source_ids - Facts, or points of finer summaries, that it cites.
SELECT
    summary_id || '#' || position AS id,
    summary_id,
    grain,
    period,
    workspace_id,
    agent_id,
    position,
    length(point.sentence) AS characters,
    point.source_ids AS source_ids
FROM (
    SELECT
        id AS summary_id, grain, period, workspace_id, agent_id,
        unnest(key_points) AS point, generate_subscripts(key_points, 1) - 1 AS position
    FROM summaries
) AS points
