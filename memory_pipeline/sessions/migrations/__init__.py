"""Migrations of the table of entries, run by Alembic."""
