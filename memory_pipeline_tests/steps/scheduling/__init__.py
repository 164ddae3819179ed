"""Tests of ``steps/scheduling``."""
