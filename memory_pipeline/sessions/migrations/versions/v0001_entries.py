"""Create the table of entries."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the table. Its texts compare by their bytes in both databases."""
    texts = "id key lake_id workspace_id agent_id identity kind space section type value".split()
    op.create_table(
        "memory_pipeline_entries",
        sa.Column("container", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in texts),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("accesses", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("container", "key"),
    )
    op.create_index(
        "memory_pipeline_entries_by_owner",
        "memory_pipeline_entries",
        ["lake_id", "workspace_id", "identity"],
    )
