"""Tests of ``lake/collections``."""
