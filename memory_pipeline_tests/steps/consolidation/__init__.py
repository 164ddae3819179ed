"""Tests of ``steps/consolidation``."""
