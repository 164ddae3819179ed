"""Tests of ``memories``."""
