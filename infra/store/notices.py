"""What the cloud announced of a host, and what the fleet decided: when it goes. From then on it gets no forks.

Its live forks are locked before its row, as everywhere; with both locked no fork comes or goes unseen.
"""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from app.domain.event import Event, EventKind
from app.domain.fork import ForkState
from app.domain.instant import instant
from app.domain.run import Fork
from app.domain.spot import SAME_NOTICE_NS, Notice
from app.errors import NotFound
from infra.store.engine import locked
from infra.store.events import of_fork, tell
from infra.store.rows import lock_forks
from infra.store.tables import builds, forks, hosts, is_live, is_unsettled, trials


def give(at: Connection, host_id: str, told: Notice, now_ns: int) -> bool:
    """Note a notice; False if it is known. Raises NotFound(unknown_host).

    What waits there is sent elsewhere by whoever unassigns from hosts that are shut.
    """
    gone_ns = now_ns + told.in_ns
    if _is_known(_gone_ns(at, host_id), gone_ns):
        return False
    here = lock_forks(at, is_live, forks.c.host_id == host_id)
    if _is_known(_gone_ns(at, host_id, lock=True), gone_ns):
        return False
    at.execute(update(hosts).where(hosts.c.host_id == host_id).values(gone_ns=gone_ns))
    tell(at, [_leaving(fork, told, gone_ns) for fork in _running(here)])
    return True


def withdraw(at: Connection, host_id: str) -> bool:
    """Undo a notice; False if there is none. Raises NotFound(unknown_host)."""
    if _gone_ns(at, host_id) is None:
        return False
    here = lock_forks(at, is_live, forks.c.host_id == host_id)
    if _gone_ns(at, host_id, lock=True) is None:
        return False
    at.execute(update(hosts).where(hosts.c.host_id == host_id).values(gone_ns=None))
    why = f"the cloud does not take {host_id} back after all"
    tell(at, [of_fork(EventKind.HOST_STAYING, fork, reason=why) for fork in _running(here)])
    return True


def retire(at: Connection, host_id: str, now_ns: int) -> bool:
    """Take a host out of placement if nothing needs it; whether it is. Raises NotFound(unknown_host).

    Whoever places a fork waits for the host's lock: what is counted under it holds.
    """
    row = at.execute(locked(select(hosts).where(hosts.c.host_id == host_id))).one_or_none()
    if row is None:
        raise NotFound("unknown_host", f"host {host_id} has not been registered")
    if row.retired_ns is not None:
        return True
    if _is_needed(at, host_id) or (row.holds and not row.fetches):
        return False
    at.execute(update(hosts).where(hosts.c.host_id == host_id).values(retired_ns=now_ns))
    return True


def _is_needed(at: Connection, host_id: str) -> bool:
    """Whether a fork or a machine of our own has its place there, or a build its candidate."""
    placed = select(forks.c.fork_id).where(forks.c.host_id == host_id, is_live)
    built = (
        select(builds.c.build_id)
        .join(forks, forks.c.fork_id == builds.c.template_fork_id)
        .where(is_unsettled, forks.c.host_id == host_id)
    )
    tried = select(trials.c.name).where(trials.c.host_id == host_id)
    return any(at.execute(found.limit(1)).first() is not None for found in (placed, built, tried))


def _is_known(known_ns: int | None, gone_ns: int) -> bool:
    return known_ns is not None and abs(known_ns - gone_ns) < SAME_NOTICE_NS


def _gone_ns(at: Connection, host_id: str, *, lock: bool = False) -> int | None:
    statement = select(hosts.c.gone_ns).where(hosts.c.host_id == host_id)
    row = at.execute(locked(statement) if lock else statement).one_or_none()
    if row is None:
        raise NotFound("unknown_host", f"host {host_id} has not been registered")
    return None if row.gone_ns is None else int(row.gone_ns)


def _running(here: tuple[Fork, ...]) -> list[Fork]:
    return [fork for fork in here if fork.state is not ForkState.QUEUED]


def _leaving(fork: Fork, told: Notice, gone_ns: int) -> Event:
    why = f"the cloud takes {fork.host_id} back"
    gone_at = instant(gone_ns)
    return of_fork(EventKind.HOST_LEAVING, fork, reason=why, gone_at=gone_at, action=told.action)
