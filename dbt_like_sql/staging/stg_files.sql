-- Bytes of partitions.
-- Row: one partition of a table that is partitioned by period.
-- Owner: team:memory
-- Columns:
--   asset - Asset of the table: messages, working_facts, daily_summaries, ….
--   period - Period.
--   bytes - Bytes of its files.
SELECT asset, period, bytes
FROM files
