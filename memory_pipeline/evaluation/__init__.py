"""Measure retrieval quality, and how much of the answers each grain retains, with labelled questions on a real lake."""
