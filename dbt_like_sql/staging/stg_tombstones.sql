-- Tombstones of erased agents, conversations and people. They hold salted hashes, no names.
-- Row: one mark by which erased data is recognized.
-- Owner: team:memory
SELECT kind, id, workspace_id, forgotten_at, len(hours) AS hours, is_done
FROM tombstones
