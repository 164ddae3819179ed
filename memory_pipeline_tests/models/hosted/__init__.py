"""Tests of what asks models behind LiteLLM."""
