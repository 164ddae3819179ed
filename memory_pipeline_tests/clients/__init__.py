"""Tests of the clients in other languages, against the real service."""
