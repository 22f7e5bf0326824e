"""The rows, by noun. Every method is one transaction; every write that follows a machine's work is fenced by its claim.

Times that decide anything here (heartbeats, claims, ages, expiries, months) are the database's. Money moves by relative
updates under the run's lock, and named constraints hold `budget = pool + granted + charged`, each at least 0. What a
project's live runs hold and its ended ones were charged is never above its month's budget.
A database that is away raises Unavailable(database_away).
"""

from __future__ import annotations

from typing import Protocol

from app.domain.account import Receipt
from app.domain.audit import Entry
from app.domain.checks import Check
from app.domain.event import Event
from app.domain.fork import EndReason
from app.domain.fork_page import Machine
from app.domain.mounts import Claimable
from app.domain.quote import Quote
from app.domain.report import AttemptLine, Tally
from app.domain.run import (
    Attempt,
    Claimed,
    Closed,
    Closing,
    Exec,
    Fork,
    Run,
    Verdict,
)
from app.domain.run_ledger import Life, Move
from app.domain.snapshot import Build, BuildError, BuildState, Candidate, Snapshot


class Snapshots(Protocol):
    def get(self, project_id: str, ref: str) -> Snapshot:
        """`name` (its newest version) or `name@3`. Raises NotFound(unknown_snapshot), naming near ones."""
        ...

    def list(self, project_id: str) -> tuple[Snapshot, ...]: ...

    def delete(self, project_id: str, ref: str) -> tuple[Snapshot, ...]:
        """Every version of a bare name, or one. Raises NotFound, Conflict(snapshot_in_use) while a live run needs it.

        A deleted version's number is never given again.
        """
        ...

    def bundle_ids(self) -> frozenset[str]:
        """All bundles that a stored snapshot or an unfinished build owns: everything else is a leak.

        A build's bundle has the build's id, so that it is owned before it is made.
        """
        ...


class Quotes(Protocol):
    def save(self, project_id: str, quote: Quote, spec_sha256: str) -> None: ...

    def get(self, project_id: str, quote_id: str) -> tuple[Quote, str]:
        """The quote and the sha256 of the spec that it was made for. Raises NotFound(unknown_quote)."""
        ...


class Runs(Protocol):
    def start(self, run: Run, forks: tuple[Fork, ...], receipt: Receipt | None) -> None:
        """Rows, budget and grants in one transaction; what waits has waited from now on, by the database's clock.

        Raises Conflict(idempotency_race): read the receipt and answer it. NotFound(unknown_snapshot) if a version was
        deleted meanwhile. Conflict(project_budget_exhausted) if the project's month has less left than the budget.
        """
        ...

    def get(self, project_id: str, run_id: str) -> Run:
        """Raises NotFound(unknown_run)."""
        ...

    def list(
        self, project_id: str, labels: dict[str, str], limit: int, before: str | None
    ) -> tuple[Run, ...]:
        """Users' runs, newest first, all labels matching; `before` is the last run_id of the page before.

        Raises NotFound(unknown_run) for a `before` that is none of the project's.
        """
        ...

    def forks(self, run_id: str) -> tuple[Fork, ...]:
        """By index; an internal run's template is not among them."""
        ...

    def fork(self, project_id: str, fork_id: str) -> Fork:
        """Raises NotFound(unknown_fork)."""
        ...

    def machines(self, fork_id: str) -> tuple[Machine, ...]:
        """Each machine that a fork had, in order; what is left of a lease by the database's clock."""
        ...

    def console(self, fork_id: str) -> tuple[str, str] | None:
        """The attempt and the console's tail of the last machine of a fork that has ended; None if there was none."""
        ...

    def attempts(self, run_id: str) -> tuple[AttemptLine, ...]:
        """In order of opening; an open one shows what it accrued, never above its lease."""
        ...

    def tallies(self, run_ids: tuple[str, ...]) -> dict[str, Tally]:
        """`report.tally` of each run, counted by the database: many forks cost little more than few."""
        ...

    def ledger(self, run_id: str) -> tuple[tuple[Move, ...], tuple[Life, ...]]:
        """Every booking of a run's money, in order, and every machine's life with its cost, in order of opening.

        At one instant: the bookings add up to the run's figures, and what was charged is that of the closed lives.
        """
        ...

    def events(
        self, project_id: str, run_id: str, after: int, limit: int
    ) -> tuple[tuple[Event, ...], bool]:
        """What happened in a run after its event of that number, in order; and whether nothing more ever will.

        Every transition tells of itself in its own transaction. Numbers are 1, 2, 3 and so on, and whoever has read one
        has missed none before it. Raises NotFound(unknown_run).
        """
        ...

    def ask_stop(self, run_id: str, reason: EndReason) -> tuple[Attempt, ...]:
        """Ask every fork of a run that has not ended to stop (first wish wins); those without a machine end at once.

        Returns the open attempts, whose hosts obey. Twice is safe.
        """
        ...

    def release(
        self, project_id: str, fork_id: str, reason: EndReason, reward: float | None
    ) -> Attempt | None:
        """Hand a held fork back: a wish that its host obeys (the attempt is returned); without a machine it
        ends at once.

        The same grade again changes nothing; another raises Conflict(already_released). Conflict(fork_not_held)
        for a fork of an exec run; if it ended otherwise Conflict(fork_ended), or Conflict(environment_failure)
        when its machine was lost.
        """
        ...


class Attempts(Protocol):
    """Machines' lives. `claim` names the worker process that acts; a write of another's raises StaleClaim."""

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
        """Claim one queued fork that is placed on this host (this one, if given) and open its meter: state RESTORING.

        A template is claimed only by its id, others only as `of` allows. The lease is what its grant funds. A fork that
        is asked to stop, or whose grant cannot fund its smallest lease, is left to `Meters.settle`. None when none of
        the others waits, or when `at_once` forks of this host are RESTORING or CHECKING: those that wait cost nothing
        meanwhile. Two workers never get the same fork.
        """
        ...

    def checking(self, claimed: Claimed, checks: tuple[Check, ...], sample: str) -> Claimed:
        """The barrier passed: state CHECKING, checks kept. Twice is safe.

        Raises Conflict(duplicate_sample) if another fork of this run had it.
        """
        ...

    def checked(self, claimed: Claimed, checks: tuple[Check, ...]) -> Claimed:
        """More probes hold: all checks so far are kept, for whoever goes on with the fork when its test has ended."""
        ...

    def ready(self, claimed: Claimed, ready_boot_ns: int, checks: tuple[Check, ...]) -> Claimed:
        """All checks hold: state READY; verification ends here. Twice is safe: the first time counts."""
        ...

    def keep(self, claimed: Claimed, verdict: Verdict) -> bool:
        """Keep a fork whose verdict is known, with its machine, if fewer than its run's `keep_failed` are kept now.

        It is READY, its lease is extended no more, and whatever closes its attempt ends it with this verdict. Kept
        already: True, and nothing changes. False if it is not kept: it is asked to stop, its barrier was not passed, or
        the reason is none of `KEEPABLE`.
        """
        ...

    def close(
        self, claimed: Claimed, closing: Closing, more_forks: tuple[Fork, ...] = ()
    ) -> Closed:
        """Close the meter: charge the measured life, give the host's room back, end or requeue the fork.

        A fork to be requeued ends instead if it is asked to stop; and `environment_failed` if grant and pool cannot
        fund its smallest lease, or if a command may have started (unless the run allows `rerun_started`): the row's
        intent decides, not the caller's copy of it. Commands that have not ended are LOST, with the failure if there is
        one. What follows for the run is `Meters.settle`'s. `more_forks` (a build's verification forks) join the run in
        the same transaction, their grants from the pool; Conflict(pool_exhausted) if it has not as much, then nothing
        is done. They do not join where the fork is asked to stop: it ends for that.
        """
        ...

    def close_by_time(self, attempt_id: str, failure_message: str) -> Closed | None:
        """Law 8, without a claim: charge the whole lease, as `host_lost` or as what a command's saved result decided.

        None if it was closed meanwhile or is not due.
        """
        ...

    def close_gone(self, attempt_id: str, failure_message: str) -> Closed | None:
        """Without a claim too, and before law 8 would: for a machine whose host, as its cloud says, is no more.

        Its life until now is charged, at most its lease; else as `close_by_time`. None if it was closed meanwhile.
        """
        ...

    def get(self, attempt_id: str) -> Claimed | None:
        """The rows of an attempt, open or closed."""
        ...

    def held_by(self, host_id: str) -> tuple[Claimed, ...]:
        """All open attempts of a host, with present leases and wishes."""
        ...

    def adopt(
        self, attempt_id: str, host_id: str, claim: str, of: str | None = None
    ) -> Claimed | None:
        """A worker takes over an open attempt of its own host: the other process's writes become stale.

        With `of` only if that claim holds it still: of two that find a process dead one gets the machine.
        """
        ...

    def overdue(self) -> tuple[Attempt, ...]:
        """Open attempts past `ledger.may_close_by_time`."""
        ...


class Execs(Protocol):
    def request(self, asked: Exec, entry: Entry | None = None) -> tuple[Exec, str]:
        """A held fork's command, QUEUED; returns it and the claim to ring. Same id and spec again: the row as it is.

        `entry` is written to the audit log with the new row, in its transaction.

        Raises Conflict(exec_id_taken, fork_not_held, fork_ended), NotYet(fork_not_ready, too_many_execs),
        NotFound(unknown_fork). A fork that is kept takes commands like a held one; one that has a machine can be
        looked at (`LOOKS`) whatever it is.
        A fork whose machine was lost raises Conflict(environment_failure) with `failure` and `fork_id` in its details.
        """
        ...

    def intend(self, claimed: Claimed, asked: Exec) -> Exec | None:
        """Commit the intent: QUEUED (or new) -> RUNNING, before any byte goes to the guest. None if it is
        not QUEUED any more.

        Unless it is the platform's own test, or the fork is kept, the attempt has its `intent` from now on; and a fork
        that is READY becomes RUNNING. Raises Conflict(stop_asked) if the fork is to stop.
        """
        ...

    def finish(self, claimed: Claimed, ended: Exec) -> bool:
        """RUNNING (or QUEUED) -> ENDED with `ended.result` and `ended.file`; True if this call did it.

        A held or kept fork with nothing else running is READY again.
        """
        ...

    def note(self, claimed: Claimed, seen: Exec) -> None:
        """Keep what a command left behind on whose end nothing is decided: it stays as it is, RUNNING or LOST later."""
        ...

    def of_fork(self, fork_id: str, limit: int) -> tuple[Exec, ...]:
        """The newest commands and file moves of a fork, oldest first, without their output; looks are left out."""
        ...

    def unfinished(self, attempt_id: str) -> tuple[Exec, ...]:
        """QUEUED and RUNNING ones, oldest first."""
        ...

    def find(self, exec_id: str) -> Exec | None: ...

    def get(self, project_id: str, fork_id: str, exec_id: str) -> Exec:
        """Raises NotFound(unknown_exec)."""
        ...

    def queued_for(self, host_id: str, claim: str) -> tuple[Exec, ...]:
        """Commands that wait on machines of this worker process: what a lost bell left behind."""
        ...


class Builds(Protocol):
    def start(self, build: Build, run: Run, template: Fork, receipt: Receipt | None) -> None:
        """Like `Runs.start`, for an internal run with its template (`build.template_fork_id`)."""
        ...

    def get(self, project_id: str, build_id: str) -> Build:
        """With its log. Raises NotFound(unknown_build)."""
        ...

    def find(self, build_id: str) -> Build | None: ...

    def of_run(self, run_id: str) -> Build | None: ...

    def say(self, build_id: str, step: str, text: str) -> None:
        """Append to the log (the last 2,000 lines are kept, 8 KiB of each), and note the step."""
        ...

    def advance(self, build_id: str, state: BuildState) -> None:
        """QUEUED -> BUILDING -> VERIFYING; silent if it is final."""
        ...

    def frozen(self, build_id: str, candidate: Candidate) -> None:
        """Note the candidate, before its attempt is closed."""
        ...

    def accept(self, build_id: str, snapshot: Snapshot) -> Snapshot:
        """Insert the snapshot with the next version of its name and end the build `verified`, in one transaction.

        Twice gives the same snapshot. Raises Conflict(build_ended) if the build ended without one.
        """
        ...

    def refuse(self, build_id: str, state: BuildState, error: BuildError) -> bool:
        """End the build without a snapshot; False if it had ended already."""
        ...

    def unsettled(self) -> tuple[tuple[Build, str | None], ...]:
        """Builds that are not final though all forks of their run have ended, and the host of their template."""
        ...
