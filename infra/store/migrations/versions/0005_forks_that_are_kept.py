"""Forks that are kept after their verdict; consoles of machines that ended; callers' names of commands, and looks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    with op.batch_alter_table("fork") as fork:
        fork.add_column(sa.Column("kept", sa.String(), nullable=True))
        fork.add_column(sa.Column("kept_until_ns", sa.BigInteger(), nullable=True))
        fork.create_check_constraint(
            op.f("ck_fork_kept_until_some_time"), "(kept IS NULL) = (kept_until_ns IS NULL)"
        )
        fork.create_check_constraint(
            op.f("ck_fork_kept_is_its_verdict"),
            "kept IS NULL OR reason IS NULL OR reason = kept",
        )
    op.add_column("attempt", sa.Column("console", sa.Text(), nullable=True))
    op.add_column("exec", sa.Column("name", sa.String(), nullable=True))
    op.add_column("exec", sa.Column("look", sa.Text(), nullable=True))
