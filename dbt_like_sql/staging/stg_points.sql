-- Key points of summaries, with their sources.
-- Row: one key point of a summary.
-- Owner: team:memory
-- Columns:
--   id - Id for citations: id of the summary, # and the position.
--   summary_id - Summary.
--   grain - Grain of the summary.
--   period - Period of the summary.
--   workspace_id - Workspace.
--   agent_id - Agent.
--   identity - User or group whose memory it is, such as user:u17; empty for the agent's own.
--   position - Position in the summary, from 0.
--   characters - Characters of the sentence.
--   source_ids - Ids of the cited facts, or key points of finer summaries.
SELECT
    summary_id || '#' || position AS id,
    summary_id,
    grain,
    period,
    workspace_id,
    agent_id,
    identity,
    position,
    length(point.sentence) AS characters,
    point.source_ids AS source_ids
FROM (
    SELECT
        id AS summary_id, grain, period, workspace_id, agent_id, identity,
        unnest(key_points) AS point, generate_subscripts(key_points, 1) - 1 AS position
    FROM summaries
) AS points
