"""What happened in each run, and runs that their own rule stopped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

EVENTS = (
    sa.Column("run_id", sa.String(), nullable=False),
    sa.Column("number", sa.Integer(), nullable=False),
    sa.Column("at_ns", sa.BigInteger(), nullable=False),
    sa.Column("kind", sa.String(), nullable=False),
    sa.Column("fork_id", sa.String(), nullable=True),
    sa.Column("index", sa.Integer(), nullable=True),
    sa.Column("attempt_id", sa.String(), nullable=True),
    sa.Column("host_id", sa.String(), nullable=True),
    sa.Column("reason", sa.Text(), nullable=True),
    sa.Column("data", sa.Text(), nullable=False),
)


def upgrade() -> None:
    op.add_column("run", sa.Column("stopped", sa.Text(), nullable=True))
    op.create_table(
        "event",
        *EVENTS,
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_event_run_id"),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_event"),
    )
    op.create_table(
        "event_count",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("events", sa.Integer(), nullable=False),
        sa.CheckConstraint("events >= 0", name=op.f("ck_event_count_events_not_negative")),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name="fk_event_count_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_event_count"),
        postgresql_with={"fillfactor": 50},
    )
    # Of what happened before there were events, none is told.
    op.execute("INSERT INTO event_count (run_id, events) SELECT run_id, 0 FROM run")
    env_failed = sa.text("outcome = 'env_failed'")
    op.create_index(
        "ix_fork_env_failed",
        "fork",
        ["run_id"],
        sqlite_where=env_failed,
        postgresql_where=env_failed,
    )
