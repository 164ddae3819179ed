"""Search in the index: rows in memory, candidates, scores and hits."""
