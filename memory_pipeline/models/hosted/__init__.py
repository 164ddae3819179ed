"""Models behind LiteLLM: any provider, or a server of one's own. See ``transport.litellm_client``."""
