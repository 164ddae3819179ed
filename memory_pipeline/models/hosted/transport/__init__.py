"""Requests to hosted models: sent through LiteLLM, with budgets, retries and dry runs."""
