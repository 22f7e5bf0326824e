"""Where a host is, which bundles it can have, and when the cloud takes it back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    with op.batch_alter_table("host") as host:
        host.add_column(sa.Column("zone", sa.Text(), nullable=True))
        host.add_column(sa.Column("fetches", sa.Boolean(), nullable=True))
        host.add_column(sa.Column("holds", sa.Text(), nullable=True))
        host.add_column(sa.Column("gone_ns", sa.BigInteger(), nullable=True))
    # Until it says what it has, at its first heartbeat, a host goes on with what is mounted.
    op.execute("UPDATE host SET fetches = false, holds = mounted")
    with op.batch_alter_table("host") as host:
        host.alter_column("fetches", existing_type=sa.Boolean(), nullable=False)
        host.alter_column("holds", existing_type=sa.Text(), nullable=False)
