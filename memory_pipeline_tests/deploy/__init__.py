"""Tests of `deploy/`: files that no code of ours reads are read here as those programs read them that do."""
