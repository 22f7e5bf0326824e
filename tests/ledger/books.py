"""The money of runs as a database holds it: in memory, by the product's own ledger, and nothing but money.

Every method is one transaction of the store, with what it reads and what it decides in the same order. The proof of the
laws runs on it, and the real stores are compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from app.domain import ledger
from app.domain.fork import OUTCOMES, EndReason, ForkState, Outcome, move
from app.domain.ledger import NOTHING, Move, Need, Purse, Split
from app.errors import StaleClaim
from infra.store.hosts import ALIVE_NS

UNCHARGED = Split(0, 0, 0, 0)


@dataclass(slots=True)
class Run:
    run_id: str
    cap_micros: int
    rate: int
    purse: Purse
    requested: int
    environment_retries: int
    rerun_started: bool
    smallest_lease_ns: int = 0
    ended: bool = False
    entries: dict[tuple[str, str, int], Move] = field(default_factory=dict)
    begun_with: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class Fork:
    fork_id: str
    run_id: str
    index: int
    grant_micros: int
    worst_micros: int
    worst_attempt_ns: int
    smallest_micros: int
    template: bool = False
    state: ForkState = ForkState.QUEUED
    reason: EndReason | None = None
    outcome: Outcome | None = None
    stop_asked: EndReason | None = None
    failed: bool = False
    host: str | None = None
    attempt_id: str | None = None
    attempts: int = 0
    queued_ns: int = 0


@dataclass(slots=True)
class Attempt:
    """`*_boot_ns` by the host's clock, `opened_ns` and `ready_ns` by the database's. `noted` is (when, micros)."""

    attempt_id: str
    fork_id: str
    run_id: str
    number: int
    host: str
    claim: str
    boot_id: str
    opened_boot_ns: int
    opened_ns: int
    lease_ns: int
    first_lease_ns: int
    ready_boot_ns: int | None = None
    ready_ns: int | None = None
    intent: bool = False
    closed_boot_ns: int | None = None
    closed_ns: int | None = None
    closed_by_time: bool = False
    charged: Split = UNCHARGED
    noted: tuple[int, int] | None = None
    late_ns: int = 0

    @property
    def deadline_boot_ns(self) -> int:
        return self.opened_boot_ns + self.lease_ns

    @property
    def is_open(self) -> bool:
        return self.closed_boot_ns is None


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt is closed; `then` None asks for a replacement. `boot_id` is that of the reading."""

    closed_boot_ns: int
    boot_id: str
    then: EndReason | None
    failed: bool = False
    late_ns: int = 0


class BookedTwiceError(Exception):
    """An entry is there already: what a primary key refuses."""


class Books:
    """All runs with their forks, machines' lives and ledger entries."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.forks: dict[str, Fork] = {}
        self.attempts: dict[str, Attempt] = {}
        self.booked: Counter[str] = Counter()
        self.heard_ns: dict[str, int] = {}

    def start(self, run: Run, forks: Iterable[Fork], now_ns: int) -> None:
        run.begun_with = (run.purse.pool_micros, run.purse.granted_micros)
        self.runs[run.run_id] = run
        self._insert(forks, now_ns)

    def open_next(
        self, host: str, claim: str, boot_id: str, opened_boot_ns: int, attempt_id: str, now_ns: int
    ) -> Attempt | None:
        """The next fork placed on a host that can start gets a machine."""
        for fork in self._queued():
            if fork.host == host and not fork.template and self._may_start(fork):
                return self._open(fork, claim, boot_id, opened_boot_ns, attempt_id, now_ns)
        return None

    def settle(self, run_id: str) -> None:
        """Placed forks that cannot start are funded, or end, as they wait in line; without a live fork the run ends."""
        for fork in self._queued():
            if fork.run_id == run_id and fork.host is not None and not self._may_start(fork):
                self._fund_or_end(fork)
        self._end_if_done(self.runs[run_id])

    def open_template(
        self,
        fork: Fork,
        claim: str,
        boot_id: str,
        opened_boot_ns: int,
        attempt_id: str,
        now_ns: int,
    ) -> Attempt | None:
        if fork.state is not ForkState.QUEUED or not self._may_start(fork):
            return None
        return self._open(fork, claim, boot_id, opened_boot_ns, attempt_id, now_ns)

    def ready(self, attempt_id: str, claim: str, ready_boot_ns: int, now_ns: int) -> None:
        attempt, fork = self._held(attempt_id, claim)
        fork.state = move(move(fork.state, ForkState.CHECKING), ForkState.READY)
        attempt.ready_boot_ns, attempt.ready_ns = ready_boot_ns, now_ns

    def close(
        self, attempt_id: str, claim: str, end: End, now_ns: int, joining: tuple[Fork, ...] = ()
    ) -> Fork:
        """Raises StaleClaim, and Conflict(pool_exhausted) as the store does: then nothing is done."""
        attempt, fork = self._held(attempt_id, claim)
        if end.boot_id != attempt.boot_id:
            aged_ns = attempt.opened_boot_ns + now_ns - attempt.opened_ns
            end = End(aged_ns, attempt.boot_id, end.then, end.failed, end.late_ns)
        if joining and fork.stop_asked is not None:
            end, joining = replace(end, then=fork.stop_asked), ()
        return self._close(attempt, fork, end, self._reason(attempt, fork, end), now_ns, joining)

    def close_by_time(self, attempt_id: str, now_ns: int) -> bool:
        attempt = self.attempts[attempt_id]
        age_ns = now_ns - attempt.opened_ns
        if not attempt.is_open or not ledger.may_close_by_time(age_ns, attempt.lease_ns):
            return False
        fork, run = self.forks[attempt.fork_id], self.runs[attempt.run_id]
        again = not fork.template and attempt.number <= run.environment_retries
        then = fork.stop_asked or (None if again else EndReason.ENVIRONMENT_FAILED)
        end = End(attempt.deadline_boot_ns, attempt.boot_id, then, failed=True)
        attempt.closed_by_time = True
        self._close(attempt, fork, end, self._reason(attempt, fork, end), now_ns, ())
        return True

    def adopt(self, attempt_id: str, claim: str) -> None:
        if self.attempts[attempt_id].is_open:
            self.attempts[attempt_id].claim = claim

    def sharable(self) -> list[str]:
        return [
            run.run_id
            for run in self.runs.values()
            if run.purse.pool_micros and not run.ended and self._wanting(run)
        ]

    def share(self, run_id: str, now_ns: int) -> dict[str, int]:
        """What each fork got."""
        run = self.runs[run_id]
        if run.ended or run.purse.pool_micros == 0:
            return {}
        added = ledger.share(run.purse.pool_micros, self.needs(run_id, now_ns), run.rate, now_ns)
        number = sum(kind == "share" for _, kind, _ in run.entries)
        self._book(run, run_id, "share", ledger.grant(sum(added.values())), number)
        for fork_id, part in added.items():
            self._extend(self.forks[fork_id], part, run.rate)
        return added

    def needs(self, run_id: str, now_ns: int) -> tuple[Need, ...]:
        return tuple(self._need(fork, now_ns) for fork in self._wanting(self.runs[run_id]))

    def meter(self, attempt_id: str, now_ns: int) -> Split:
        """What an open attempt costs so far, by the database's clock."""
        attempt = self.attempts[attempt_id]
        ready_ns = None if attempt.ready_ns is None else attempt.ready_ns - attempt.opened_ns
        rate = self.runs[attempt.run_id].rate
        age_ns = now_ns - attempt.opened_ns
        return ledger.charge(age_ns, attempt.lease_ns, ready_ns, rate, failed=False)

    def note(self, attempt_id: str, seen_ns: int, split: Split) -> bool:
        """Keep a figure that is more than the last, on an attempt that is still open; whether it was kept."""
        attempt = self.attempts[attempt_id]
        last = 0 if attempt.noted is None else attempt.noted[1]
        if not attempt.is_open or split.total_micros <= last:
            return False
        attempt.noted = (seen_ns, split.total_micros)
        return True

    def overdue(self, now_ns: int) -> list[str]:
        return [
            attempt.attempt_id
            for attempt in self.attempts.values()
            if attempt.is_open
            and ledger.may_close_by_time(now_ns - attempt.opened_ns, attempt.lease_ns)
        ]

    def ask_stop(self, run_id: str, reason: EndReason) -> None:
        for fork in self.of_run(run_id):
            if fork.state is ForkState.QUEUED:
                self._end_waiting(fork, reason)
            elif fork.state is not ForkState.ENDED:
                fork.stop_asked = fork.stop_asked or reason

    def expire_queued(self, run_id: str) -> None:
        for fork in self.of_run(run_id):
            if fork.state is ForkState.QUEUED:
                self._end_waiting(fork, EndReason.ENVIRONMENT_FAILED)

    def of_run(self, run_id: str) -> list[Fork]:
        return [fork for fork in self.forks.values() if fork.run_id == run_id]

    def open_on(self, host: str) -> list[Attempt]:
        return [each for each in self.attempts.values() if each.is_open and each.host == host]

    def _queued(self) -> list[Fork]:
        queued = (fork for fork in self.forks.values() if fork.state is ForkState.QUEUED)
        return sorted(queued, key=lambda fork: (fork.queued_ns, fork.index))

    def _held(self, attempt_id: str, claim: str) -> tuple[Attempt, Fork]:
        attempt = self.attempts[attempt_id]
        if not attempt.is_open or attempt.claim != claim:
            raise StaleClaim(attempt_id)
        return attempt, self.forks[attempt.fork_id]

    def _may_start(self, fork: Fork) -> bool:
        return fork.stop_asked is None and ledger.may_start(fork.grant_micros, fork.smallest_micros)

    def _fund_or_end(self, fork: Fork) -> None:
        run = self.runs[fork.run_id]
        moved = ledger.top_up(fork.grant_micros, fork.smallest_micros, run.purse.pool_micros)
        if moved is None:
            self._end_waiting(fork, ledger.unfunded(failed_before=fork.failed))
            return
        self._book(run, fork.fork_id, "top_up", moved, fork.attempts)
        fork.grant_micros += moved.granted_micros

    def _open(
        self,
        fork: Fork,
        claim: str,
        boot_id: str,
        opened_boot_ns: int,
        attempt_id: str,
        now_ns: int,
    ) -> Attempt:
        assert fork.host is not None
        rate = self.runs[fork.run_id].rate
        lease_ns = ledger.lease_ns(fork.grant_micros, rate, fork.worst_attempt_ns)
        fork.attempts += 1
        fork.state, fork.attempt_id = move(fork.state, ForkState.RESTORING), attempt_id
        whose = (attempt_id, fork.fork_id, fork.run_id, fork.attempts, fork.host)
        times = (opened_boot_ns, now_ns, lease_ns, lease_ns)
        attempt = Attempt(*whose, claim, boot_id, *times)
        self.attempts[attempt_id] = attempt
        return attempt

    def _reason(self, attempt: Attempt, fork: Fork, end: End) -> EndReason | None:
        if end.then is not None:
            return end.then
        if fork.stop_asked is not None:
            return fork.stop_asked
        if attempt.intent and not self.runs[attempt.run_id].rerun_started:
            return EndReason.ENVIRONMENT_FAILED
        return None

    def _close(
        self,
        attempt: Attempt,
        fork: Fork,
        end: End,
        reason: EndReason | None,
        now_ns: int,
        joining: tuple[Fork, ...],
    ) -> Fork:
        run = self.runs[attempt.run_id]
        split = _charge(attempt, end, reason, run.rate)
        settled = ledger.settle(
            split,
            fork.grant_micros,
            fork.worst_micros,
            fork.smallest_micros,
            run.purse.pool_micros,
            replaced=reason is None,
        )
        pool = run.purse.pool_micros + settled.returned.pool_micros + settled.topped_up.pool_micros
        joined = ledger.join(pool, (each.grant_micros for each in joining))
        self._book(run, attempt.attempt_id, "charge", settled.charged)
        self._book(run, attempt.attempt_id, "top_up", settled.topped_up)
        self._book(run, fork.fork_id, "return", settled.returned)
        self._book(run, attempt.attempt_id, "grant", joined)
        attempt.closed_boot_ns, attempt.closed_ns = end.closed_boot_ns, now_ns
        attempt.charged, attempt.late_ns = split, end.late_ns
        fork.failed, fork.attempt_id = end.failed, None
        if settled.goes_on:
            fork.state, fork.host = move(fork.state, ForkState.QUEUED), None
            fork.grant_micros, fork.worst_micros = settled.grant_micros, settled.worst_micros
            fork.queued_ns = now_ns
        else:
            self._ended(fork, reason or EndReason.ENVIRONMENT_FAILED)
        self._insert(joining, now_ns)
        run.requested += len(joining)
        return fork

    def _end_waiting(self, fork: Fork, reason: EndReason) -> None:
        run = self.runs[fork.run_id]
        self._book(run, fork.fork_id, "return", ledger.give_back(fork.grant_micros))
        self._ended(fork, reason)
        self._end_if_done(run)

    def _ended(self, fork: Fork, reason: EndReason) -> None:
        fork.state = move(fork.state, ForkState.ENDED)
        fork.reason, fork.outcome, fork.grant_micros = reason, OUTCOMES[reason], 0

    def _end_if_done(self, run: Run) -> None:
        run.ended = all(fork.state is ForkState.ENDED for fork in self.of_run(run.run_id))

    def _wanting(self, run: Run) -> list[Fork]:
        return [
            fork
            for fork in self.of_run(run.run_id)
            if fork.state is not ForkState.ENDED
            and not fork.template
            and fork.stop_asked is None
            and fork.worst_micros > fork.grant_micros
        ]

    def _need(self, fork: Fork, now_ns: int) -> Need:
        figures = (fork.fork_id, fork.grant_micros, fork.worst_micros)
        if fork.attempt_id is None:
            return Need(*figures)
        machine = self.attempts[fork.attempt_id]
        # A host that never says anything here is one that is always heard.
        silent_ns = now_ns - self.heard_ns.get(machine.host, now_ns)
        return Need(*figures, machine.opened_ns + machine.lease_ns, silent_ns <= ALIVE_NS)

    def _extend(self, fork: Fork, part: int, rate: int) -> None:
        fork.grant_micros += part
        if fork.attempt_id is not None:
            lease_ns = ledger.lease_ns(fork.grant_micros, rate, fork.worst_attempt_ns)
            self.attempts[fork.attempt_id].lease_ns = lease_ns

    def _insert(self, forks: Iterable[Fork], now_ns: int) -> None:
        for fork in forks:
            fork.queued_ns = now_ns
            self.forks[fork.fork_id] = fork

    def _book(self, run: Run, subject: str, kind: str, moved: Move, sequence: int = 0) -> None:
        if moved == NOTHING:
            return
        if (subject, kind, sequence) in run.entries:
            raise BookedTwiceError(subject, kind, sequence)
        run.purse = run.purse.after(moved)
        run.entries[subject, kind, sequence] = moved
        self.booked[kind] += 1


def _charge(attempt: Attempt, end: End, reason: EndReason | None, rate: int) -> Split:
    ready_ns = attempt.ready_boot_ns
    return ledger.charge(
        end.closed_boot_ns - attempt.opened_boot_ns,
        attempt.lease_ns,
        None if ready_ns is None else ready_ns - attempt.opened_boot_ns,
        rate,
        failed=ledger.is_environments(reason, failed=end.failed),
    )
