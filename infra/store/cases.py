"""All that the rows know of where one fork was placed, and what it waits for."""

from __future__ import annotations

from sqlalchemy import Connection, and_, func, or_, select

from app.domain.account import month_of
from app.domain.event import Event, EventKind
from app.domain.explanation import Case
from app.errors import NotFound
from infra.store.budgets import find_project
from infra.store.engine import AnyRow
from infra.store.placing import IS_UNPLACED, needed, needing
from infra.store.rows import fork_of, index_of, noun_of
from infra.store.tables import events, forks, runs

OF_PLACES = (
    EventKind.PLACED,
    EventKind.UNPLACED,
    EventKind.ATTEMPT_FAILED,
    EventKind.REPLACED,
    EventKind.HOST_LEAVING,
    EventKind.HOST_STAYING,
)
MOST_EVENTS = 200


def case_of(at: Connection, fork_id: str, now_ns: int) -> Case:
    """`Hosts.case`, in the caller's transaction."""
    mine = forks.c.fork_id == fork_id
    row = at.execute(select(forks).where(mine)).one_or_none()
    if row is None:
        raise NotFound("unknown_fork", f"there is no fork {fork_id}")
    return Case(
        fork=fork_of(row),
        needs=needed(at.execute(needing().where(mine)).one()),
        project=find_project(at, row.project_id, month_of(now_ns)),
        ahead=_ahead(at, row),
        events=_events(at, row),
    )


def _ahead(at: Connection, row: AnyRow) -> int:
    """Forks that wait for a place and are older, whoever's."""
    created_ns = select(runs.c.created_ns).where(runs.c.run_id == row.run_id).scalar_subquery()
    before = or_(
        runs.c.created_ns < created_ns,
        and_(runs.c.created_ns == created_ns, runs.c.run_id < row.run_id),
        and_(runs.c.run_id == row.run_id, forks.c.index < index_of(row)),
    )
    counted = (
        select(func.count())
        .select_from(forks)
        .join(runs, runs.c.run_id == forks.c.run_id)
        .where(*IS_UNPLACED, before)
    )
    return int(at.execute(counted).scalar_one())


def _events(at: Connection, row: AnyRow) -> tuple[Event, ...]:
    """The newest that tell of its places, oldest first."""
    newest = (
        select(events)
        .where(
            events.c.run_id == row.run_id,
            events.c.fork_id == row.fork_id,
            events.c.kind.in_(OF_PLACES),
        )
        .order_by(events.c.number.desc())
        .limit(MOST_EVENTS)
    )
    return tuple(noun_of(Event, each) for each in reversed(at.execute(newest).all()))
