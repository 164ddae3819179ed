"""Keep the highest version of all deleted entries, so that a new entry never repeats a version."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_KEEP = """
    INSERT INTO memory_pipeline_floors VALUES (OLD.lake_id, OLD.version)
    ON CONFLICT (lake_id) DO UPDATE SET version = excluded.version
    WHERE memory_pipeline_floors.version < excluded.version;
"""


def upgrade() -> None:
    """Create a row for each lake, and a trigger that updates it in the transaction of a deletion."""
    op.create_table(
        "memory_pipeline_floors",
        sa.Column("lake_id", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    trigger = "CREATE TRIGGER memory_pipeline_floor AFTER DELETE ON memory_pipeline_entries FOR EACH ROW"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"{trigger} BEGIN {_KEEP} END")
        return
    op.execute(
        "CREATE FUNCTION memory_pipeline_keep_version() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {_KEEP} RETURN NULL; END $$"
    )
    op.execute(f"{trigger} EXECUTE FUNCTION memory_pipeline_keep_version()")
