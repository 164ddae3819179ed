"""What Alembic runs to migrate. The connection, its transaction and its lock come from the caller."""

from alembic import context

from memory_pipeline.sessions.database import VERSIONS

context.configure(connection=context.config.attributes["connection"], version_table=VERSIONS)
context.run_migrations()
