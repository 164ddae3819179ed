"""Tests of ``lake/sql``."""
