-- One row for each partition of an asset that was made.
SELECT asset, period, rows, agents, unfinished, input_digest, output_digest
FROM ledger
