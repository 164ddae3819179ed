"""The service: memory over HTTP, with tokens, MCP, health and metrics."""
