"""Models behind LiteLLM: any provider, or a self-hosted server. See ``transport.litellm_client``."""
