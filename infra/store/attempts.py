"""Machines' lives: opened on a grant, fenced by a claim. Their ends are in `closing.py`."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from app.domain import ledger
from app.domain.checks import Check
from app.domain.event import EventKind
from app.domain.fork import ForkState, move
from app.domain.money import NS_PER_SECOND
from app.domain.mounts import Claimable
from app.domain.run import Attempt, Claimed, Closed, Closing, Fork, Result, Role, Verdict
from app.errors import Conflict
from app.ids import new_id
from infra.store import closing as ends
from infra.store import keeping
from infra.store.deployments import deployment_of
from infra.store.engine import BRIEFLY_MS, Database, insert_new
from infra.store.events import of_fork, tell
from infra.store.fence import held
from infra.store.rows import (
    claimed_of,
    columns_of,
    find_attempt,
    find_run,
    fork_of,
    noun_of,
    save,
)
from infra.store.tables import attempts, forks, hosts, is_live, is_open, is_queued, samples

# What waits and cannot start is the control plane's to fund or to end (`settling.py`).
MAY_START = (
    is_queued,
    forks.c.stop_asked.is_(None),
    forks.c.grant_micros >= forks.c.smallest_micros,
)


class Attempts:
    """`app.ports.store.Attempts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(
        self,
        host_id: str,
        claim: str,
        boot_id: str,
        opened_boot_ns: int,
        fork_id: str | None,
        at_once: int | None = None,
        of: Claimable | None = None,
    ) -> Claimed | None:
        with self._database.write() as at:
            if at_once is not None and _coming_up(at, host_id) >= at_once:
                return None
            now_ns = self._database.now_ns(at)
            fork = _next_queued(at, host_id, fork_id, _allowed(of, now_ns))
            if fork is None:
                return None
            return _open(at, fork, claim, boot_id, opened_boot_ns, now_ns)

    def checking(self, claimed: Claimed, checks: tuple[Check, ...], sample: str) -> Claimed:
        with self._database.write() as at:
            fork, attempt = held(at, claimed)
            if fork.state is ForkState.CHECKING:
                return Claimed(attempt, fork, claimed.run)
            _keep_sample(at, attempt, sample)
            new = replace(fork, state=move(fork.state, ForkState.CHECKING), checks=checks)
            save(at, forks, "fork_id", fork, new)
            told = of_fork(EventKind.CHECKING, new, checks=_names(checks))
            tell(at, [told])
        return Claimed(attempt, new, claimed.run)

    def checked(self, claimed: Claimed, checks: tuple[Check, ...]) -> Claimed:
        with self._database.write() as at:
            fork, attempt = held(at, claimed)
            new = replace(fork, checks=checks)
            save(at, forks, "fork_id", fork, new)
        return Claimed(attempt, new, claimed.run)

    def ready(self, claimed: Claimed, ready_boot_ns: int, checks: tuple[Check, ...]) -> Claimed:
        with self._database.write() as at:
            fork, attempt = held(at, claimed)
            if fork.state is ForkState.READY:
                return Claimed(attempt, fork, claimed.run)
            now_ns = self._database.now_ns(at)
            new = replace(
                fork, state=move(fork.state, ForkState.READY), checks=checks, ready_ns=now_ns
            )
            verified = replace(attempt, ready_boot_ns=ready_boot_ns)
            save(at, forks, "fork_id", fork, new)
            save(at, attempts, "attempt_id", attempt, verified, ready_ns=now_ns)
            seconds = (ready_boot_ns - attempt.opened_boot_ns) / NS_PER_SECOND
            told = of_fork(EventKind.READY, new, checks=_names(checks), seconds=seconds)
            tell(at, [told])
        return Claimed(verified, new, claimed.run)

    def keep(self, claimed: Claimed, verdict: Verdict) -> bool:
        with self._database.write() as at:
            return keeping.keep(at, claimed, verdict)

    def close(
        self, claimed: Claimed, closing: Closing, more_forks: tuple[Fork, ...] = ()
    ) -> Closed:
        with self._database.write() as at:
            return ends.close(at, claimed, closing, more_forks, self._database.now_ns(at))

    def close_by_time(self, attempt_id: str, failure_message: str) -> Closed | None:
        with self._database.write(BRIEFLY_MS) as at:
            now_ns = self._database.now_ns(at)
            return ends.close_by_time(at, attempt_id, failure_message, now_ns)

    def close_gone(self, attempt_id: str, failure_message: str) -> Closed | None:
        with self._database.write(BRIEFLY_MS) as at:
            now_ns = self._database.now_ns(at)
            return ends.close_by_time(at, attempt_id, failure_message, now_ns, gone=True)

    def get(self, attempt_id: str) -> Claimed | None:
        with self._database.read() as at:
            attempt = find_attempt(at, attempt_id)
            return None if attempt is None else claimed_of(at, (attempt,))[0]

    def held_by(self, host_id: str) -> tuple[Claimed, ...]:
        with self._database.read() as at:
            rows = at.execute(
                select(attempts)
                .where(attempts.c.host_id == host_id, is_open)
                .order_by(attempts.c.opened_ns, attempts.c.attempt_id)
            )
            return claimed_of(at, [noun_of(Attempt, row) for row in rows])

    def adopt(
        self, attempt_id: str, host_id: str, claim: str, of: str | None = None
    ) -> Claimed | None:
        named = [attempts.c.attempt_id == attempt_id, attempts.c.host_id == host_id, is_open]
        if of is not None:
            named.append(attempts.c.claim == of)
        with self._database.write() as at:
            adopted = at.execute(update(attempts).where(*named).values(claim=claim))
            attempt = find_attempt(at, attempt_id)
            if adopted.rowcount == 0 or attempt is None:
                return None
            (claimed,) = claimed_of(at, (attempt,))
            told = of_fork(EventKind.ADOPTED, claimed.fork, worker=claim)
            tell(at, [told])
            return claimed

    def overdue(self) -> tuple[Attempt, ...]:
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            rows = at.execute(
                select(attempts)
                .where(is_open, attempts.c.opened_ns + attempts.c.lease_ns < now_ns)
                .order_by(attempts.c.attempt_id)
            )
            return tuple(
                noun_of(Attempt, row)
                for row in rows
                if ledger.may_close_by_time(now_ns - row.opened_ns, row.lease_ns)
            )


def _coming_up(at: Connection, host_id: str) -> int:
    """How many forks of a host have a machine that is not handed over yet."""
    states = (ForkState.RESTORING, ForkState.CHECKING)
    here = (forks.c.host_id == host_id, is_live, forks.c.role == Role.FORK)
    count = select(func.count()).where(*here, forks.c.state.in_(states))
    return int(at.execute(count).scalar_one())


def _allowed(of: Claimable | None, now_ns: int) -> ColumnElement[bool]:
    """Forks of what is mounted, and those that waited when a mount of their bundle began that failed."""
    if of is None:
        return true()
    waited = (
        and_(forks.c.bundle_id == bundle_id, forks.c.queued_ns <= now_ns - age_ns)
        for bundle_id, age_ns in of.failed.items()
    )
    return or_(forks.c.bundle_id.in_(of.mounted), *waited)


def _next_queued(
    at: Connection, host_id: str, fork_id: str | None, allowed: ColumnElement[bool]
) -> Fork | None:
    """The next fork placed here that no other worker is claiming; a template only by its id.

    None on a host in quarantine, about to go or with its disk nearly full: what is placed there is about to be
    taken off it.
    """
    chosen = forks.c.role == Role.FORK if fork_id is None else forks.c.fork_id == fork_id
    shut = select(hosts.c.host_id).where(
        hosts.c.host_id == host_id,
        or_(
            hosts.c.quarantine.is_not(None),
            hosts.c.gone_ns.is_not(None),
            hosts.c.retired_ns.is_not(None),
            hosts.c.disk_nearly_full,
        ),
    )
    row = at.execute(
        select(forks)
        .where(forks.c.host_id == host_id, *MAY_START, chosen, allowed, ~shut.exists())
        .order_by(forks.c.queued_ns, forks.c.index)
        .limit(1)
        .with_for_update(key_share=True, skip_locked=True)
    ).one_or_none()
    return None if row is None else fork_of(row)


def _open(
    at: Connection,
    fork: Fork,
    claim: str,
    boot_id: str,
    opened_boot_ns: int,
    now_ns: int,
) -> Claimed:
    assert fork.host_id is not None  # it was chosen by its host
    run = find_run(at, fork.run_id)
    rate = run.quote.rate.micros_per_hour
    attempt = Attempt(
        attempt_id=new_id("att"),
        fork_id=fork.fork_id,
        run_id=fork.run_id,
        number=fork.attempts + 1,
        host_id=fork.host_id,
        claim=claim,
        boot_id=boot_id,
        opened_boot_ns=opened_boot_ns,
        lease_ns=ledger.lease_ns(fork.grant_micros, rate, fork.worst_attempt_ns),
        micros_per_hour=rate,
        epoch=deployment_of(at).epoch,
    )
    at.execute(insert(attempts).values(columns_of(attempt) | {"opened_ns": now_ns}))
    new = replace(
        fork,
        state=move(fork.state, ForkState.RESTORING),
        attempt_id=attempt.attempt_id,
        attempts=attempt.number,
        result=Result(),
        checks=(),
        ready_ns=None,
    )
    save(at, forks, "fork_id", fork, new)
    lease_seconds = attempt.lease_ns / NS_PER_SECOND
    opened = of_fork(EventKind.RESTORING, new, attempt=attempt.number, lease_seconds=lease_seconds)
    tell(at, [opened])
    return Claimed(attempt, new, run)


def _names(checks: tuple[Check, ...]) -> list[str]:
    return [check.name for check in checks]


def _keep_sample(at: Connection, attempt: Attempt, sample: str) -> None:
    row = {"run_id": attempt.run_id, "sample": sample, "attempt_id": attempt.attempt_id}
    if not insert_new(at, samples, row):
        raise Conflict(
            "duplicate_sample",
            f"another machine of run {attempt.run_id} gave the same entropy sample",
            sample=sample,
        )
