"""Tests of the deterministic models."""
