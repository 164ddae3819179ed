"""Tests of the files in `deploy/`, read as Dagster, Compose and Helm read them."""
