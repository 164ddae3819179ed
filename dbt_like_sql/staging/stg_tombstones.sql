-- What was forgotten; what it was is nowhere written in clear.
-- Row: one way in which something that was forgotten is known again.
-- Owner: team:memory
SELECT kind, id, workspace_id, forgotten_at, len(hours) AS hours, is_done
FROM tombstones
