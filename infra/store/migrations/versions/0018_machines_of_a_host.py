"""Which runs have machines of a host: what a host's own login may see and write goes by it."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
kind = "expand"


def upgrade() -> None:
    op.create_index("ix_attempt_host_id_run_id", "attempt", ["host_id", "run_id"])
