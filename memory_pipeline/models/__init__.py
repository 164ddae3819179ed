"""Models that make facts, vectors and summaries. They implement the ports of :mod:`memory_pipeline.domain`."""
