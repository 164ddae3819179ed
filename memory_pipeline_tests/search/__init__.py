"""Tests of ``search``."""
