"""A project's month: budgets of its runs are set aside here, and what these did not spend comes back.

A run's budget is counted whole from its start to its end, so a charge moves nothing here. The rows are locked last of
all, project before month: many runs share them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select, update

from app.domain.account import Project, budget_exhausted, check_name, month_of
from app.domain.run import Run
from infra.store.engine import AnyRow, insert_new, locked
from infra.store.tables import project_months, projects


def commit_budget(at: Connection, run: Run, now_ns: int) -> None:
    """Set a new run's budget aside. Raises Conflict(project_budget_exhausted); the caller's transaction is undone."""
    month = month_of(now_ns)
    if _commit(at, run, month):
        return
    if not _has_begun(at, run.project_id, month):
        open_month(at, run.project_id, month, now_ns)
    # Again in any case: another may have begun the month between the two looks.
    if _commit(at, run, month):
        return
    raise budget_exhausted(find_project(at, run.project_id, month), run.budget_micros)


def settle_budget(at: Connection, run: Run) -> None:
    """A run has ended: what it was not charged is its project's again."""
    unspent = run.budget_micros - run.charged_micros
    if unspent == 0:
        return
    at.execute(
        update(project_months)
        .where(*_is(run.project_id, month_of(run.created_ns)))
        .values(committed_micros=project_months.c.committed_micros - unspent)
    )


def open_month(at: Connection, project_id: str, month: str, now_ns: int) -> None:
    """Make the rows of a project and its month unless they are there; the month begins with the project's budget."""
    make_project(at, project_id, now_ns)
    budget = at.execute(
        locked(select(projects.c.monthly_budget_micros).where(projects.c.project_id == project_id))
    ).scalar_one()
    row = {"project_id": project_id, "month": month, "budget_micros": budget}
    insert_new(at, project_months, row | {"committed_micros": 0})


def make_project(at: Connection, project_id: str, now_ns: int) -> None:
    """Make a project unless it is there. Raises BadRequest for a name that no new one may have."""
    if insert_new(at, projects, {"project_id": project_id, "created_ns": now_ns}):
        check_name(project_id)


def find_project(at: Connection, project_id: str, month: str) -> Project:
    """A project as it stands in a month; one without a row has no limits."""
    row = at.execute(standing(month).where(projects.c.project_id == project_id)).one_or_none()
    if row is None:
        return Project(project_id, month)
    return project_of(row, month)


def project_of(row: AnyRow, month: str) -> Project:
    """A row of `standing`."""
    return Project(
        project_id=row.project_id,
        month=month,
        monthly_budget_micros=row.monthly_budget_micros,
        committed_micros=row.committed_micros,
        max_forks=row.max_forks,
        live_forks=row.live_forks,
    )


def standing(month: str) -> Select[Any]:
    """Projects with the fields of a `Project` in a month."""
    committed = func.coalesce(project_months.c.committed_micros, 0).label("committed_micros")
    limits = (projects.c.project_id, projects.c.monthly_budget_micros, projects.c.max_forks)
    of_month = and_(
        project_months.c.project_id == projects.c.project_id, project_months.c.month == month
    )
    return select(*limits, projects.c.live_forks, committed).outerjoin(project_months, of_month)


def _commit(at: Connection, run: Run, month: str) -> bool:
    # Looking and moving are one statement: a budget that is read before its row is locked may be gone.
    after = project_months.c.committed_micros + run.budget_micros
    enough = or_(project_months.c.budget_micros.is_(None), after <= project_months.c.budget_micros)
    moved = at.execute(
        update(project_months)
        .where(*_is(run.project_id, month), enough)
        .values(committed_micros=after)
    )
    return moved.rowcount == 1


def _has_begun(at: Connection, project_id: str, month: str) -> bool:
    found = select(project_months.c.month).where(*_is(project_id, month))
    return at.execute(found).first() is not None


def _is(project_id: str, month: str) -> tuple[ColumnElement[bool], ...]:
    return project_months.c.project_id == project_id, project_months.c.month == month
