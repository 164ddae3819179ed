"""Tests of ``domain/text``."""
