"""What broke on a host in a row, and its quarantine."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    with op.batch_alter_table("host") as host:
        host.add_column(sa.Column("strikes", sa.Text(), nullable=True))
        host.add_column(sa.Column("self_tests", sa.Integer(), nullable=True))
        host.add_column(sa.Column("quarantine", sa.Text(), nullable=True))
    op.execute("UPDATE host SET strikes = '[]', self_tests = 0")
    with op.batch_alter_table("host") as host:
        host.alter_column("strikes", existing_type=sa.Text(), nullable=False)
        host.alter_column("self_tests", existing_type=sa.Integer(), nullable=False)
        host.create_check_constraint(op.f("ck_host_self_tests_not_negative"), "self_tests >= 0")
