"""Tests of ``lake/files``."""
