"""Daily consolidation of durable memories: merge duplicates, resolve contradictions, archive stale ones."""
