"""Budgets and limits of projects, and attempts by the time of their end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# The month of UTC in which a run began.
MONTH = {
    "sqlite": "strftime('%Y-%m', created_ns / 1000000000, 'unixepoch')",
    "postgresql": "to_char(to_timestamp(created_ns / 1000000000) AT TIME ZONE 'UTC', 'YYYY-MM')",
}
RUN = ("project_id", "created_ns", "state", "budget_micros", "charged_micros")


def upgrade() -> None:
    _add_limits()
    _add_months()
    op.create_index("ix_attempt_closed_ns", "attempt", ["closed_ns"])


def _add_limits() -> None:
    # A run needs its project from now on, and before it did not.
    op.execute(
        "INSERT INTO project (project_id, created_ns) SELECT project_id, min(created_ns) FROM run "
        "WHERE project_id NOT IN (SELECT project_id FROM project) GROUP BY project_id"
    )
    with op.batch_alter_table("project") as project:
        project.add_column(sa.Column("monthly_budget_micros", sa.BigInteger(), nullable=True))
        project.add_column(sa.Column("max_forks", sa.Integer(), nullable=True))
        project.add_column(sa.Column("live_forks", sa.Integer(), nullable=True))
    op.execute(
        "UPDATE project SET live_forks = (SELECT count(*) FROM fork WHERE "
        "fork.project_id = project.project_id AND fork.host_id IS NOT NULL AND fork.state <> 'ended')"
    )
    with op.batch_alter_table("project") as project:
        project.alter_column("live_forks", existing_type=sa.Integer(), nullable=False)
        for column in ("monthly_budget_micros", "max_forks", "live_forks"):
            project.create_check_constraint(
                op.f(f"ck_project_{column}_not_negative"), f"{column} >= 0"
            )
        project.create_check_constraint(
            op.f("ck_project_within_the_limit"), "live_forks <= max_forks"
        )


def _add_months() -> None:
    op.create_table(
        "project_month",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("month", sa.String(), nullable=False),
        sa.Column("budget_micros", sa.BigInteger(), nullable=True),
        sa.Column("committed_micros", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "budget_micros >= 0", name=op.f("ck_project_month_budget_micros_not_negative")
        ),
        sa.CheckConstraint(
            "committed_micros <= budget_micros", name=op.f("ck_project_month_within_the_budget")
        ),
        sa.CheckConstraint(
            "committed_micros >= 0", name=op.f("ck_project_month_committed_micros_not_negative")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.project_id"], name="fk_project_month_project_id"
        ),
        sa.PrimaryKeyConstraint("project_id", "month", name="pk_project_month"),
    )
    _begin_months()


def _begin_months() -> None:
    """What the runs so far hold and were charged, each in the month that it began in."""
    run = sa.table("run", *map(sa.column, RUN))
    month: sa.ColumnElement[str] = sa.literal_column(MONTH[op.get_context().dialect.name])
    held = sa.case((run.c.state == "ended", run.c.charged_micros), else_=run.c.budget_micros)
    months = sa.select(run.c.project_id, month, sa.func.sum(held)).group_by(run.c.project_id, month)
    columns = ("project_id", "month", "committed_micros")
    project_month = sa.table("project_month", *map(sa.column, columns))
    op.execute(sa.insert(project_month).from_select(columns, months))
