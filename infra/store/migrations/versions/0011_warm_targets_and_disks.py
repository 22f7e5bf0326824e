"""What is to be kept warm; and what a host says of its disk and of what it could not mount."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "warm_target",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("hosts", sa.Integer(), nullable=False),
        sa.Column("set_ns", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("hosts >= 1", name=op.f("ck_warm_target_some_hosts")),
        sa.CheckConstraint("version >= 0", name=op.f("ck_warm_target_version_or_newest")),
        sa.PrimaryKeyConstraint("project_id", "name", "version", name="pk_warm_target"),
    )
    with op.batch_alter_table("host") as host:
        host.add_column(sa.Column("disk_free_bytes", sa.BigInteger(), nullable=True))
        host.add_column(sa.Column("disk_nearly_full", sa.Boolean(), nullable=True))
        host.add_column(sa.Column("unmountable", sa.Text(), nullable=True))
    op.execute("UPDATE host SET disk_nearly_full = false, unmountable = '[]'")
    with op.batch_alter_table("host") as host:
        host.alter_column("disk_nearly_full", existing_type=sa.Boolean(), nullable=False)
        host.alter_column("unmountable", existing_type=sa.Text(), nullable=False)
