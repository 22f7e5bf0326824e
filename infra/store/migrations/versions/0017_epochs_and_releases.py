"""Which deployment this database is of, its epoch, and the epoch of each machine; of which release each process is."""

from __future__ import annotations

from secrets import token_hex

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
kind = "expand"


def upgrade() -> None:
    _make_deployment()
    op.create_table(
        "control_process",
        sa.Column("process_id", sa.String(), nullable=False),
        sa.Column("component", sa.String(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("release", sa.Text(), nullable=False),
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("process_id", name="pk_control_process"),
    )
    op.add_column("worker", sa.Column("revision", sa.String(), nullable=True))
    # What an older release starts belongs to the first epoch: it knows of no other.
    op.add_column(
        "attempt", sa.Column("epoch", sa.BigInteger(), nullable=False, server_default="1")
    )
    op.add_column("host", sa.Column("ahead_epoch", sa.BigInteger(), nullable=True))
    op.add_column("host", sa.Column("ahead_beat", sa.BigInteger(), nullable=True))


def _make_deployment() -> None:
    made = op.create_table(
        "deployment",
        sa.Column("one", sa.Integer(), nullable=False),
        sa.Column("deployment_id", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("since_ns", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("least_revision", sa.String(), nullable=False),
        sa.CheckConstraint("one = 1", name=op.f("ck_deployment_just_one")),
        sa.CheckConstraint("epoch >= 1", name=op.f("ck_deployment_epoch_from_1")),
        sa.CheckConstraint("beat >= 0", name=op.f("ck_deployment_beat_not_negative")),
        sa.CheckConstraint("since_ns >= 0", name=op.f("ck_deployment_since_ns_not_negative")),
        sa.PrimaryKeyConstraint("one", name="pk_deployment"),
    )
    first = {"one": 1, "epoch": 1, "since_ns": 0, "beat": 0, "least_revision": "0001"}
    op.bulk_insert(made, [{**first, "deployment_id": token_hex(8)}])
