"""Tests of ``lake/index``."""
