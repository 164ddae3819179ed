-- Tombstones of erased data. They contain none of it in clear text.
-- Row: one rule that recognizes erased data.
-- Owner: team:memory
SELECT kind, id, workspace_id, forgotten_at, len(hours) AS hours, is_done
FROM tombstones
