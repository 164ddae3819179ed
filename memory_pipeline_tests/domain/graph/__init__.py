"""Tests of ``domain/graph``."""
