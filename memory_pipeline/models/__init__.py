"""What turns text into facts, vectors and summaries. The ports it fills are in :mod:`memory_pipeline.domain`."""
