"""Long-term memory for AI agents, as a data pipeline.

Agents write with :class:`memory_pipeline.writer.MemoryWriter` and read with
:class:`memory_pipeline.reader.MemoryReader`; Dagster loads :mod:`memory_pipeline.definitions`.
Importing this package imports nothing heavy.
"""
