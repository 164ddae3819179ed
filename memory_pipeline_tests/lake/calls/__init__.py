"""Tests of ``lake/calls``."""
