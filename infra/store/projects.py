"""Projects: their limits, and how they stand against them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, func, select, update

from app.domain.account import (
    Account,
    Limits,
    Project,
    check_limits,
    month_end_ns,
    month_of,
    month_start_ns,
)
from app.errors import NotFound
from infra.store.budgets import find_project, open_month, project_of, standing
from infra.store.engine import AnyRow, Database, locked
from infra.store.tables import project_months, projects, runs


class Projects:
    """`app.ports.callers.Projects`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, project_id: str) -> Project:
        with self._database.read() as at:
            return find_project(at, project_id, month_of(self._database.now_ns(at)))

    def account(self, project_id: str) -> Account:
        with self._database.read() as at:
            month = month_of(self._database.now_ns(at))
            named = _accounts(month).where(projects.c.project_id == project_id)
            row = at.execute(named).one_or_none()
        if row is None:
            raise NotFound("unknown_project", f"there is no project {project_id}")
        return _account(row, month)

    def list(self) -> tuple[Account, ...]:
        with self._database.read() as at:
            month = month_of(self._database.now_ns(at))
            rows = at.execute(_accounts(month).order_by(projects.c.project_id))
            return tuple(_account(row, month) for row in rows)

    def set_limits(self, project_id: str, changes: Limits) -> None:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            month = month_of(now_ns)
            open_month(at, project_id, month, now_ns)
            of_month = (project_months.c.project_id == project_id, project_months.c.month == month)
            at.execute(locked(select(project_months).where(*of_month)))
            check_limits(find_project(at, project_id, month), changes)
            if not changes:
                return
            at.execute(update(projects).where(projects.c.project_id == project_id).values(changes))
            if "monthly_budget_micros" in changes:
                # A month that another process has begun already, just after midnight, is one of these.
                present = (
                    project_months.c.project_id == project_id,
                    project_months.c.month >= month,
                )
                budget = changes["monthly_budget_micros"]
                at.execute(update(project_months).where(*present).values(budget_micros=budget))


def _accounts(month: str) -> Select[Any]:
    """`standing` with what the runs of the month were charged, as of one instant."""
    charged = (
        select(func.coalesce(func.sum(runs.c.charged_micros), 0))
        .where(
            runs.c.project_id == projects.c.project_id,
            runs.c.created_ns >= month_start_ns(month),
            runs.c.created_ns < month_end_ns(month),
        )
        .scalar_subquery()
    )
    return standing(month).add_columns(charged.label("charged_micros"))


def _account(row: AnyRow, month: str) -> Account:
    # PostgreSQL adds up 64-bit integers as decimals.
    return Account(project_of(row, month), int(row.charged_micros))
