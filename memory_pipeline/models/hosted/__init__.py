"""Models behind LiteLLM: any provider, or a server of one's own. See :mod:`~memory_pipeline.models.hosted.door`."""
