"""A store and the pure books beside it: every event happens to both, and then they say the same of all money."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from sqlalchemy import select

from app.domain.fork import EndReason, ForkState
from app.domain.ledger import Purse
from app.domain.money import NS_PER_SECOND
from app.domain.run import Claimed, Closing, Exec, ExecPurpose, Fork, Run, Verdict
from app.errors import Conflict, StaleClaim
from infra.store.schema import LedgerKind
from infra.store.tables import attempts, forks, ledger, runs
from tests import builders as a
from tests.contract.rows import Rows
from tests.ledger import books
from tests.ledger.books import End
from tests.ledger.kept import KeepingBooks

SECOND = a.MICROS_PER_SECOND
MOST_ACTIVE = 3
# The host began before its first attempt; what lies between two events is odd, so that every cost is rounded.
TICK_NS = 1_000_003
OVER = frozenset({ForkState.QUEUED, ForkState.ENDED})


class Mirror:
    """What the store was made to do so far is `reached`; `held` are claims, some of which are stale by now."""

    def __init__(self, rows: Rows, seed: int) -> None:
        self.rows = rows
        self.books = KeepingBooks()
        self.chance = random.Random(seed)
        self.held: list[Claimed] = []
        self.workers = 1
        self.reached: Counter[str] = Counter()

    @property
    def now_ns(self) -> int:
        return self.rows.clock.wall_ns()

    @property
    def boot_ns(self) -> int:
        """What the host's clock says; it has a beginning of its own."""
        return self.rows.clock.boot_ns()

    def step(self) -> None:
        """One event of those that happen to runs, and then all that must be the same."""
        self.rows.clock.advance(TICK_NS / NS_PER_SECOND)
        events = (
            (2, self.start),
            (2, self.build),
            (8, self.open),
            (3, self.ready),
            (6, self.close),
            (1, self.restart),
            (5, self.share),
            (3, self.heartbeat),
            (2, self.accrue),
            (1, self.stop),
            (3, self.keep),
            (3, self.wait),
            (3, self.close_by_time),
        )
        weights = [weight for weight, _ in events]
        self.chance.choices([event for _, event in events], weights)[0]()
        self.compare()

    def start(self) -> None:
        if self._active() >= MOST_ACTIVE:
            return
        count, rerun = self.chance.randint(1, 5), self.chance.random() < 0.5
        # Some budgets do not fund even the smallest lease of each fork.
        budget = self.chance.randint(8 * count * SECOND, 70 * count * SECOND)
        keep = self.chance.randint(0, 2)
        run, its_forks = a.step(count, budget, rerun_started=rerun, keep_failed=keep)
        self.rows.store.runs.start(run, its_forks, None)
        self.books.limits[run.run_id] = keep
        self._note(run, its_forks)

    def build(self) -> None:
        """A build's template, which another event may join forks to."""
        if self._active() >= MOST_ACTIVE:
            return
        build, run, template = a.build(budget_micros=self.chance.randint(30, 200) * SECOND)
        self.rows.store.builds.start(build, run, template, None)
        self._note(run, (template,))

    def open(self) -> None:
        """A template that waits, else the next fork."""
        self.heartbeat()
        self.rows.place()
        self._place()
        topped_up = self.books.booked["top_up"]
        self.rows.settle()
        for run_id in self.books.runs:
            self.books.settle(run_id)
        template = self._waiting_template()
        template_id = None if template is None else template.fork_id
        how = (self._claim, "boot", self.boot_ns)
        claimed = self.rows.store.attempts.open(a.HOST, *how, template_id)
        attempt_id = "" if claimed is None else claimed.attempt.attempt_id
        if template is None:
            opened = self.books.open_next(a.HOST, *how, attempt_id, self.now_ns)
        else:
            opened = self.books.open_template(template, *how, attempt_id, self.now_ns)
        assert (opened and opened.fork_id) == (claimed and claimed.fork.fork_id)
        self.reached["topped up before it opened"] += self.books.booked["top_up"] - topped_up
        if claimed is not None:
            self.held.append(claimed)

    def heartbeat(self) -> None:
        self.rows.store.hosts.heartbeat(a.HOST, ())
        self.books.heard_ns[a.HOST] = self.now_ns

    def ready(self) -> None:
        claimed = self._pick()
        if claimed is None or self._attempt(claimed).ready_boot_ns is not None:
            return
        attempt = self._attempt(claimed)
        if not attempt.is_open or attempt.claim != claimed.attempt.claim:
            return
        sample = attempt.attempt_id.ljust(32, "0")
        checking = self.rows.store.attempts.checking(claimed, (), sample)
        self.rows.store.attempts.ready(checking, self.boot_ns, ())
        self.books.ready(attempt.attempt_id, attempt.claim, self.boot_ns, self.now_ns)
        if self.chance.random() < 0.3:
            self.rows.store.execs.intend(claimed, _task(claimed))
            attempt.intent = True

    def close(self) -> None:
        """By whoever holds it, or held it once; twice, too. Sometimes after another boot of the host."""
        claimed = self._pick()
        if claimed is None:
            return
        then = self.chance.choice((None, None, EndReason.COMMAND_PASSED, EndReason.CANCELLED))
        failure = a.failed() if then is None else None
        boot_id = "boot" if self.chance.random() < 0.9 else "the next boot"
        at_ns = self.boot_ns if boot_id == "boot" else 7
        closing = Closing(at_ns, then, failure=failure, boot_id=boot_id, late_ns=0)
        end = End(at_ns, boot_id, then, failed=failure is not None)
        joining = self._joining(claimed)
        seen = self._refused(lambda: self._close_store(claimed, closing, joining))
        told = self._refused(lambda: self._close_books(claimed, end, joining))
        assert seen == told
        self.reached[seen or ("replaced" if then is None else "ended")] += 1
        # What went through may be sent again.
        if seen == "stale" or (seen is None and self.chance.random() < 0.7):
            self.held.remove(claimed)
        self.reached["joined"] += bool(joining) and seen is None

    def restart(self) -> None:
        """Another worker takes over all machines; the one before it still holds its claims."""
        self.workers += 1
        for found in self.rows.store.attempts.held_by(a.HOST):
            attempt_id = found.attempt.attempt_id
            claimed = self.rows.store.attempts.adopt(attempt_id, a.HOST, self._claim)
            assert claimed is not None
            self.books.adopt(attempt_id, self._claim)
            self.held.append(claimed)

    def share(self) -> None:
        sharable = self.rows.store.meters.sharable()
        assert set(sharable) <= set(self.books.sharable())
        for run_id in self.books.sharable():
            moved = sum(self.books.share(run_id, self.now_ns).values())
            assert self.rows.store.meters.share(run_id) == moved
            assert moved == 0 or run_id in sharable
            self.reached["shared"] += moved > 0

    def accrue(self) -> None:
        self.rows.store.meters.accrue()
        for claimed in self.rows.store.attempts.held_by(a.HOST):
            attempt_id = claimed.attempt.attempt_id
            split = self.books.meter(attempt_id, self.now_ns)
            lines = self.rows.store.runs.attempts(claimed.run.run_id)
            (line,) = (each for each in lines if each.attempt.attempt_id == attempt_id)
            assert line.total_micros == split.total_micros

    def stop(self) -> None:
        run_id = self.chance.choice([*self.books.runs, ""])
        if run_id and self.chance.random() < 0.3:
            self.rows.store.runs.ask_stop(run_id, EndReason.CANCELLED)
            self.books.ask_stop(run_id, EndReason.CANCELLED)

    def keep(self) -> None:
        """A verdict, be it the environment's or the task's, of whoever holds it, or held it once."""
        ready = [each for each in self.held if self._fork(each).state is ForkState.READY]
        claimed = self.chance.choice(ready) if ready else self._pick()
        if claimed is None:
            return
        failure = a.failed() if self.chance.random() < 0.5 else None
        reason = EndReason.COMMAND_FAILED if failure is None else EndReason.ENVIRONMENT_FAILED
        verdict, attempt = Verdict(reason, failure=failure), claimed.attempt
        whose = (attempt.attempt_id, attempt.claim, reason)
        kept: list[bool] = []
        store, failed = self.rows.store.attempts, failure is not None
        seen = self._refused(lambda: kept.append(store.keep(claimed, verdict)))
        told = self._refused(lambda: kept.append(self.books.keep(*whose, failed=failed)))
        assert seen == told
        assert len(set(kept)) < 2
        self.reached["kept"] += kept[:1] == [True]

    def wait(self) -> None:
        self.rows.clock.advance(self.chance.choice((0.3, 2.9, 9.1, 57.7)))

    def close_by_time(self) -> None:
        overdue = [each.attempt_id for each in self.rows.store.attempts.overdue()]
        assert sorted(overdue) == sorted(self.books.overdue(self.now_ns))
        for attempt_id in overdue:
            self.rows.clock.advance(TICK_NS / NS_PER_SECOND)
            closed = self.rows.close_by_time(attempt_id, "silent")
            assert closed is not None
            assert self.books.close_by_time(attempt_id, self.now_ns)
            self.books.settle(self.books.attempts[attempt_id].run_id)
            self.reached["closed by time"] += 1

    def compare(self) -> None:
        """The rows are what the books say, to the micro-dollar and to the nanosecond."""
        with self.rows.store.database.read() as at:
            for run in at.execute(select(runs)):
                told = self.books.runs[run.run_id]
                split = (run.pool_micros, run.granted_micros, run.charged_micros)
                assert Purse(run.budget_micros, *split) == told.purse
                assert (run.state == "ended") == told.ended
            for fork in at.execute(select(forks)):
                assert _fork(fork) == _fork(self.books.forks[fork.fork_id])
            for attempt in at.execute(select(attempts)):
                seen = self.books.attempts[attempt.attempt_id]
                assert (attempt.lease_ns, attempt.closed_boot_ns, attempt.charged_micros) == (
                    seen.lease_ns,
                    seen.closed_boot_ns,
                    seen.charged.total_micros,
                )
            booked = select(ledger).where(ledger.c.kind != LedgerKind.BUDGET)
            assert {_key(entry): _moved(entry) for entry in at.execute(booked)} == {
                key: _moved(move)
                for run in self.books.runs.values()
                for key, move in run.entries.items()
            }

    @property
    def _claim(self) -> str:
        return f"worker{self.workers}"

    def _active(self) -> int:
        return sum(not run.ended for run in self.books.runs.values())

    def _waiting_template(self) -> books.Fork | None:
        for fork in self.books.forks.values():
            if fork.template and fork.state is ForkState.QUEUED and fork.host is not None:
                return fork
        return None

    def _pick(self) -> Claimed | None:
        return self.chance.choice(self.held) if self.held else None

    def _attempt(self, claimed: Claimed) -> books.Attempt:
        return self.books.attempts[claimed.attempt.attempt_id]

    def _fork(self, claimed: Claimed) -> books.Fork:
        return self.books.forks[claimed.fork.fork_id]

    def _note(self, run: Run, its_forks: tuple[Fork, ...]) -> None:
        noted = books.Run(
            run_id=run.run_id,
            cap_micros=run.quote.cap_micros,
            rate=run.quote.rate.micros_per_hour,
            purse=run.purse,
            requested=len(its_forks),
            environment_retries=run.spec.environment_retries,
            rerun_started=run.spec.rerun_started,
        )
        self.books.start(noted, [_noted(fork) for fork in its_forks], self.now_ns)

    def _place(self) -> None:
        """Where a fork waits is not a matter of money: as the store has it."""
        with self.rows.store.database.read() as at:
            for fork in at.execute(select(forks.c.fork_id, forks.c.host_id)):
                self.books.forks[fork.fork_id].host = fork.host_id

    def _joining(self, claimed: Claimed) -> tuple[Fork, ...]:
        if not self._fork(claimed).template:
            return ()
        count = self.chance.randint(1, 3)
        pool = self.books.runs[claimed.run.run_id].purse.pool_micros
        part = int(pool * self.chance.choice((0.3, 0.9, 1.5, 3.1))) // count
        return tuple(a.fork(claimed.run.run_id, index, grant_micros=part) for index in range(count))

    def _close_store(self, claimed: Claimed, closing: Closing, more: tuple[Fork, ...]) -> None:
        self.rows.close_as(claimed, closing, more)

    def _close_books(self, claimed: Claimed, end: End, more: tuple[Fork, ...]) -> None:
        joining = tuple(_noted(fork) for fork in more)
        attempt = claimed.attempt
        self.books.close(attempt.attempt_id, attempt.claim, end, self.now_ns, joining)
        self.books.settle(attempt.run_id)

    def _refused(self, act: Any) -> str | None:
        try:
            act()
        except StaleClaim:
            return "stale"
        except Conflict as conflict:
            return conflict.code
        return None


def _noted(fork: Fork) -> books.Fork:
    return books.Fork(
        fork.fork_id,
        fork.run_id,
        fork.index,
        fork.grant_micros,
        fork.worst_micros,
        fork.worst_attempt_ns,
        fork.smallest_micros,
        template=fork.role == "template",
    )


def _task(claimed: Claimed) -> Exec:
    return Exec(
        exec_id=f"task_{claimed.attempt.attempt_id}",
        fork_id=claimed.fork.fork_id,
        attempt_id=claimed.attempt.attempt_id,
        project_id=a.PROJECT,
        purpose=ExecPurpose.TASK,
        spec=a.COMMAND,
    )


def _fork(row: Any) -> tuple[Any, ...]:
    """What the store and the books say of a fork; that a command runs is not a matter of money."""
    waits_or_ended = row.state if row.state in OVER else None
    money = (row.grant_micros, row.worst_micros, row.attempts)
    return (*money, waits_or_ended, row.reason, row.outcome, row.stop_asked)


def _key(entry: Any) -> tuple[str, str, int]:
    return (entry.subject_id, str(entry.kind), entry.sequence)


def _moved(move: Any) -> tuple[int, int, int]:
    return (move.pool_micros, move.granted_micros, move.charged_micros)
