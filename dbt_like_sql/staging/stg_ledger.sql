-- Materialized partitions, with digests of their input and output.
-- Row: one partition of an asset.
-- Owner: team:memory
SELECT
    asset, period, rows, agents, coalesce(unfinished, 0) AS unfinished, coalesce(expired, 0) AS expired,
    input_digest, output_digest
FROM ledger
