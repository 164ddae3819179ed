"""Tests of ``lake/tables``."""
