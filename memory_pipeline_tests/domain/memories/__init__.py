"""Tests of ``domain/memories``."""
