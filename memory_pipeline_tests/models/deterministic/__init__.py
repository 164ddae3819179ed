"""Tests of the models that need no model."""
