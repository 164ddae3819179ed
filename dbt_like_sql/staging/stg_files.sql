-- Where the bytes of memory lie.
-- Row: one partition of a table that is kept by the period.
-- Owner: team:memory
-- Columns:
--   asset - The asset that is kept there: messages, working_facts, daily_summaries, ….
--   period - The period.
--   bytes - Of its files.
SELECT asset, period, bytes
FROM files
