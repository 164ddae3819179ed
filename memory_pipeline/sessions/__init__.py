"""Session state: one table of entries in SQLite or PostgreSQL, and the views that agents use.

The reasons are in docs/decisions/0022-sessions.md.
"""
