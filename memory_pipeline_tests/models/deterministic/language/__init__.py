"""Tests of ``models/deterministic/language``."""
