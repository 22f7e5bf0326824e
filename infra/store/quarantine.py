"""What a host's row remembers of its failures, and its quarantine: begun where an attempt closes, ended by a test."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, Update, or_, select, update

from app.domain import quarantine
from app.domain.failure import Failure
from app.domain.quarantine import Quarantine, Strike
from app.domain.run import Attempt, Fork, Role
from app.errors import NotFound
from infra.store.engine import AnyRow, locked
from infra.store.tables import hosts

NO_STRIKES: tuple[Strike, ...] = ()


def count(
    at: Connection, fork: Fork, attempt: Attempt, failed: Failure | None, now_ns: int
) -> None:
    """Lay a closed attempt's failure at its host's door, or wipe out what lies there if the fork was handed over.

    Locks the host, where there is anything to write. Templates do not count: what fails there is mostly their own.
    """
    if fork.role is not Role.FORK:
        return
    strike = quarantine.strike_of(failed, fork.fork_id, fork.bundle_id)
    if strike is not None:
        _strike(at, attempt.host_id, strike, now_ns)
    elif attempt.ready_boot_ns is not None:
        _wipe(at, attempt.host_id)


def shut(at: Connection, host_id: str, reason: str, now_ns: int) -> None:
    """An operator's quarantine, over any other. Raises NotFound(unknown_host)."""
    _locked(at, host_id)
    _set(at, host_id, Quarantine(reason, (), (), now_ns, due_ns=None))


def lift(at: Connection, host_id: str) -> bool:
    """End a quarantine, whoever's, and what led to it, and a retirement; False if there was no quarantine.

    Raises NotFound(unknown_host).
    """
    row = _locked(at, host_id)
    at.execute(_of(host_id).values(quarantine=None, strikes=NO_STRIKES, retired_ns=None))
    return row.quarantine is not None


def begin_test(at: Connection, host_id: str, now_ns: int) -> Quarantine | None:
    """The quarantine whose self-test is due, and due again only after a longer pause; None if none is.

    So of several worker processes one tests, and one that dies in its test does not begin the next at once.
    """
    seen = at.execute(select(hosts.c.quarantine).where(hosts.c.host_id == host_id)).one_or_none()
    if seen is None or not _is_due(seen.quarantine, now_ns):
        return None  # the usual answer, once in some seconds on each host: without its lock
    row = _locked(at, host_id)
    held: Quarantine | None = row.quarantine
    if held is None or not _is_due(held, now_ns):
        return None
    tests = row.self_tests + 1
    begun = replace(held, due_ns=now_ns + quarantine.pause_ns(tests))
    at.execute(_of(host_id).values(quarantine=begun, self_tests=tests))
    return begun


def end_test(at: Connection, host_id: str, begun: Quarantine, seen: str, *, passed: bool) -> bool:
    """What a self-test saw; the quarantine ends if it passed and is still the one it was begun for."""
    held: Quarantine | None = _locked(at, host_id).quarantine
    if held is None or held.since_ns != begun.since_ns or held.by_operator:
        return False
    if passed:
        at.execute(_of(host_id).values(quarantine=None, strikes=NO_STRIKES))
    else:
        _set(at, host_id, replace(held, last_test=seen))
    return passed


def _strike(at: Connection, host_id: str, strike: Strike, now_ns: int) -> None:
    row = _locked(at, host_id)
    strikes = quarantine.struck(row.strikes, strike)
    at.execute(_of(host_id).values(strikes=strikes))
    if row.quarantine is None:
        found = quarantine.judge(strikes, _elsewhere(at, host_id), row.self_tests, now_ns)
        if found is not None:
            _set(at, host_id, found)


def _wipe(at: Connection, host_id: str) -> None:
    """A host in quarantine is judged by its tests: a fork that was handed over before says nothing new."""
    anything = or_(hosts.c.strikes != NO_STRIKES, hosts.c.self_tests != 0)
    at.execute(
        _of(host_id)
        .where(hosts.c.quarantine.is_(None), anything)
        .values(strikes=NO_STRIKES, self_tests=0)
    )


def _elsewhere(at: Connection, host_id: str) -> frozenset[str]:
    """Bundles that other hosts broke on last, as their rows say now: read without their locks, for it is a hint."""
    others = select(hosts.c.strikes).where(
        hosts.c.host_id != host_id, hosts.c.strikes != NO_STRIKES
    )
    return frozenset(each.bundle_id for row in at.execute(others) for each in row.strikes)


def _is_due(held: Quarantine | None, now_ns: int) -> bool:
    return held is not None and held.due_ns is not None and now_ns >= held.due_ns


def _locked(at: Connection, host_id: str) -> AnyRow:
    row = at.execute(locked(select(hosts).where(hosts.c.host_id == host_id))).one_or_none()
    if row is None:
        raise NotFound("unknown_host", f"host {host_id} has not been registered")
    return row


def _set(at: Connection, host_id: str, held: Quarantine) -> None:
    at.execute(_of(host_id).values(quarantine=held))


def _of(host_id: str) -> Update:
    return update(hosts).where(hosts.c.host_id == host_id)
