-- Size of the partitions of tables that are partitioned by period.
-- Row: one partition of an asset.
-- Owner: team:memory
-- Columns:
--   asset - Asset stored in the table: messages, working_facts, daily_summaries, ….
--   period - Period.
--   bytes - Size of the files in bytes.
SELECT asset, period, bytes
FROM files
