"""An attempt is charged at its end and no more than its lease; a fork has one machine at a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("attempt") as attempt:
        attempt.create_check_constraint(
            op.f("ck_attempt_charged_within_its_lease"),
            "charged_micros <= 2 + lease_ns / 3600000000000.0 * micros_per_hour",
        )
        attempt.create_check_constraint(
            op.f("ck_attempt_charged_at_its_end"),
            "closed_boot_ns IS NOT NULL OR charged_micros <= 0",
        )
    op.create_index(
        "ux_attempt_open_of_fork",
        "attempt",
        ["fork_id"],
        unique=True,
        sqlite_where=sa.text("closed_boot_ns IS NULL"),
        postgresql_where=sa.text("closed_boot_ns IS NULL"),
    )
