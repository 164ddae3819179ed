"""Tests of durable memories as readers see them."""
