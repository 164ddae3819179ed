"""The nightly consolidation of durable memories."""
