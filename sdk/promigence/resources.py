"""The calls of the client by what they are about. Each is one line of steps (`_steps/`) and its promise.

Every method raises PromigenceError (see `errors.py`); what one raises beyond the common ones stands with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, Unpack

from promigence._engine import Engine
from promigence._events import follow
from promigence._steps import debug, forks, runs, snapshots
from promigence.errors import BadRequest
from promigence.types import (
    Console,
    Downloaded,
    Event,
    ExecResult,
    Fork,
    ForkPage,
    Group,
    HeldExec,
    Host,
    Logs,
    Quote,
    QuoteTerms,
    Released,
    Report,
    Reproduction,
    Run,
    RunLedger,
    Started,
    StartTerms,
    Uploaded,
)

__all__ = ["Forks", "Hosts", "Runs"]

FOREVER_SECONDS = 365 * 86_400.0
TRANSFER_SECONDS = 3600.0
# Beyond a command's own limit: for its machine to be ready and its result to arrive.
EXEC_GRACE_SECONDS = 120.0


class Runs:
    """Steps of training: priced, started, followed, read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def quote(self, snapshot: str | Sequence[Group], **terms: Unpack[QuoteTerms]) -> Quote:
        """The most that a step can cost, before anything starts. Nothing is reserved by it.

        `snapshot` is a name (`task-suite`, `task-suite@3`) or a list of groups. Raises BadRequest (`cap_too_small`
        names the smallest cap that works), NotFound (`unknown_snapshot`), Forbidden (`egress_not_allowed`).
        """
        key = terms.get("idempotency_key") or _new_key()
        return self._engine.run(runs.quote(snapshot, terms, key, self._engine.terms()))

    def start(self, snapshot: str | Sequence[Group], **terms: Unpack[StartTerms]) -> Started:
        """Start a run; returns once it is accepted, with its `run_id` and its quote.

        It is accepted once, however often the request has to be sent. Raises what `quote` raises, and Conflict
        (`quote_mismatch`, `quote_expired`, `idempotency_mismatch`).
        """
        key = terms.get("idempotency_key") or _new_key()
        return self._engine.run(runs.start(snapshot, terms, key, self._engine.terms()))

    def report(self, run_id: str, *, forks: bool = True) -> Report:
        """What has come of a run so far; `final` says whether more will. `forks=False` leaves out the forks."""
        return self._engine.run(runs.report(run_id, forks, self._engine.terms()))

    def wait(
        self,
        run_id: str,
        timeout: float | None = None,
        *,
        forks: bool = True,
        on_progress: Callable[[Run], None] | None = None,
    ) -> Report:
        """Wait until a run is final; its report. `on_progress` is called about once a second with the run.

        Raises WaitTimeout after `timeout` seconds (None: no limit); the run goes on.
        """
        terms = self._engine.terms(FOREVER_SECONDS if timeout is None else timeout)
        return self._engine.run(runs.wait(run_id, forks, on_progress, terms))

    def cancel(self, run_id: str) -> Run:
        """End a run: its forks that are not final become `cancelled`. A final run stays as it is."""
        return self._engine.run(runs.cancel(run_id, _new_key(), self._engine.terms()))

    def get(self, run_id: str) -> Run:
        """A run with its counts and costs, without its forks."""
        return self._engine.run(runs.get(run_id, self._engine.terms()))

    def ledger(self, run_id: str) -> RunLedger:
        """Where every micro-dollar of a run went: each move of its money, each machine's life and cost."""
        return self._engine.run(runs.ledger(run_id, self._engine.terms()))

    def events(self, run_id: str, *, after: int = 0) -> Iterator[Event]:
        """What happens in a run, as it happens, from its event `after` on until the run has ended.

        Each event once and in order: where the stream breaks it goes on by itself. Raises ServerUnreachable when that
        has failed for as long as a fault is put up with; what was heard stays heard, so begin again after it.
        """
        return follow(self._engine, run_id, after)

    def forks(self, run_id: str) -> list[Fork]:
        """The forks of a run by index, each with its state."""
        return self._engine.run(runs.forks(run_id, self._engine.terms()))

    def list(
        self, labels: Mapping[str, str] | None = None, *, limit: int | None = 100
    ) -> list[Run]:
        """Runs that have all of these labels, newest first; the first `limit`, or all with None."""
        return self._engine.run(runs.find(labels or {}, limit, self._engine.terms()))


class Forks:
    """Forks that are held (`hold_seconds`) or kept (`keep_failed`): commands and files; and looks into any fork."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, fork_id: str) -> ForkPage:
        """A fork whole: how it stands, what it was given, its machines, its newest 200 commands."""
        return self._engine.run(forks.get(fork_id, self._engine.terms()))

    def logs(
        self,
        fork_id: str,
        exec_id: str | None = None,
        stream: Literal["stdout", "stderr"] = "stdout",
        *,
        start: int = 0,
        local: str | PathLike[str] | None = None,
        on_text: Callable[[str], None] | None = None,
        timeout: float = TRANSFER_SECONDS,
    ) -> Logs:
        """All that is kept of a command's output (up to 64 MiB a stream), also after its fork has ended.

        Without `exec_id` it is the command that the fork is about; `task`, `test` and `grade` name the newest of these.
        Of a command that runs it is what there is so far, 1 MiB at most; `start=logs["next"]` goes on from there. With
        `local` the bytes go into that file. With `on_text` the command is followed to its end, and each part is told as
        it comes; `text` is empty then.

        Raises NotFound (`unknown_exec`, `no_commands`), Conflict (`output_lost` with its machine).
        """
        if on_text is not None:
            if local is not None or start:
                raise BadRequest("on_text goes without local and start")
            terms = self._engine.terms(FOREVER_SECONDS)
            return self._engine.run(debug.follow(fork_id, exec_id, stream, on_text, terms))
        path = None if local is None else Path(local)
        terms = self._engine.terms(timeout)
        return self._engine.run(debug.logs(fork_id, exec_id, stream, start, path, terms))

    def console(self, fork_id: str) -> Console:
        """The last 4 KiB of the guest's console: asked of the machine's host while it lives, else as it was kept.

        Raises Unavailable when its host does not answer, NotFound (`no_console`) where no machine was.
        """
        return self._engine.run(debug.console(fork_id, self._engine.terms()))

    def reproduce(
        self,
        fork_id: str,
        *,
        hold_seconds: float = 1800.0,
        spend_cap: float | None = None,
        timeout: float | None = None,
    ) -> Reproduction:
        """Start a held fork like this one (same snapshot version, `env`, key, egress) and wait until it is ready.

        It is a run of its own, labelled `reproduces=<fork_id>`, and costs at most `spend_cap` (by default what such a
        hold can cost). Its own test is not run first. `reproduction["original"]["command"]` can be given to `exec`.

        Raises NotFound (`unknown_fork`; `unknown_snapshot` where that version was deleted), Conflict
        (`project_budget_exhausted`), EnvironmentFailure, WaitTimeout after `timeout` seconds while the run goes on.
        """
        terms = self._engine.terms(FOREVER_SECONDS if timeout is None else timeout)
        keys = (_new_key(), _new_key())
        return self._engine.run(debug.reproduce(fork_id, hold_seconds, spend_cap, keys, terms))

    def exec(
        self,
        fork_id: str,
        command: HeldExec,
        exec_id: str | None = None,
        *,
        timeout: float | None = None,
    ) -> ExecResult:
        """Run a command in a held fork and wait for its end; up to 8 at once.

        A command's own limit (`timeout_seconds` in it) is a result: `timed_out`. With the `exec_id` of an earlier
        call and the same command this finds that command again and never runs it twice.

        A fork that is not ready yet is waited for, as long as a fault is put up with (the client's `timeout`).

        Raises EnvironmentFailure when the machine is lost; Conflict (`fork_ended`, `exec_id_taken`); DeadlineExceeded
        after `timeout` seconds (by default the command's limit and two minutes) with `exec_id` in its `details`: the
        command goes on.
        """
        seconds = command.get("timeout_seconds", forks.DEFAULT_TIMEOUT_SECONDS)
        terms = self._engine.terms(seconds + EXEC_GRACE_SECONDS if timeout is None else timeout)
        named = exec_id or f"x-{uuid.uuid4().hex}"
        return self._engine.run(forks.run(fork_id, command, named, _new_key(), terms))

    def upload(
        self,
        fork_id: str,
        local: str | PathLike[str],
        guest_path: str,
        *,
        mode: int = 0o644,
        timeout: float = TRANSFER_SECONDS,
    ) -> Uploaded:
        """Write a local file into a held fork, as root; parents are made. Raises OSError for the local file."""
        terms = self._engine.terms(timeout)
        return self._engine.run(forks.upload(fork_id, Path(local), guest_path, mode, terms))

    def download(
        self,
        fork_id: str,
        guest_path: str,
        local: str | PathLike[str],
        *,
        timeout: float = TRANSFER_SECONDS,
    ) -> Downloaded:
        """Read a file of a held fork into a local one, which is replaced only when all of it has arrived."""
        terms = self._engine.terms(timeout)
        return self._engine.run(forks.download(fork_id, guest_path, Path(local), terms))

    def release(
        self, fork_id: str, passed: bool | None = None, reward: float | None = None
    ) -> Released:
        """Hand a fork back, with its grade if there is one. The same grade again changes nothing.

        A kept fork takes no grade: its verdict stands.

        Raises Conflict (`already_released` for another grade, `verdict_stands` for any of a kept fork),
        EnvironmentFailure when the machine was lost before.
        """
        steps = forks.release(fork_id, passed, reward, _new_key(), self._engine.terms())
        return self._engine.run(steps)


class Hosts:
    """The hosts that forks run on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(self) -> list[Host]:
        """Every host with its fitness and free slots."""
        return self._engine.run(snapshots.hosts(self._engine.terms()))


def _new_key() -> str:
    return str(uuid.uuid4())
