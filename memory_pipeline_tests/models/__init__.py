"""Tests of what turns text into facts, vectors and summaries."""
