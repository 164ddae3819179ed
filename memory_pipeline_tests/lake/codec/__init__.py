"""Tests of ``lake/codec``."""
