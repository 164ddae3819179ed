"""Tests of ``models/hosted/transport``."""
