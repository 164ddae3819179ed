"""Tests of what a deployment sets: the file, its faults, and who inherits what."""
