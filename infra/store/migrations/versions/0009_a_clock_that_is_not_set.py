"""How far ahead of the boot-time clock the time of day was, for SQLite's clock."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "clock",
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("ahead_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("boot_id", name="pk_clock"),
    )
