"""Adapters, on the real libraries."""
