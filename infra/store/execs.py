"""Commands and files of machines: asked, intended, ended."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, func, insert, select, update

from app.domain.fork import ForkState, move
from app.domain.run import (
    MAX_PARALLEL_EXECS,
    Claimed,
    Exec,
    ExecPurpose,
    ExecState,
    Fork,
    Role,
)
from app.errors import Conflict, NotFound, NotYet
from infra.store.ending import over
from infra.store.engine import Database
from infra.store.fence import held
from infra.store.rows import columns_of, find_exec, lock_forks, noun_of, save
from infra.store.tables import attempts, execs, forks, is_open, is_unfinished, runs

HANDED_OVER = (ForkState.READY, ForkState.RUNNING)


class Execs:
    """`app.ports.store.Execs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def request(self, asked: Exec) -> tuple[Exec, str]:
        with self._database.write() as at:
            fork = _fork(at, asked)
            there = find_exec(at, asked.exec_id)
            if there is not None:
                return _same(there, asked), fork.host_id or ""
            _check_room(at, fork)
            assert (
                fork.attempt_id is not None
            )  # a fork that was handed over has a machine, and so a host
            assert fork.host_id is not None
            new = replace(asked, attempt_id=fork.attempt_id, state=ExecState.QUEUED)
            _insert(at, new, self._database.now_ns(at))
            return new, fork.host_id

    def intend(self, claimed: Claimed, asked: Exec) -> Exec | None:
        with self._database.write() as at:
            fork, attempt = held(at, claimed)
            there = find_exec(at, asked.exec_id, lock=True)
            if there is not None and there.state is not ExecState.QUEUED:
                return None
            if fork.stop_asked is not None:
                raise Conflict("stop_asked", f"fork {fork.fork_id} is asked to stop")
            running = replace(
                there or asked, attempt_id=attempt.attempt_id, state=ExecState.RUNNING
            )
            if there is None:
                _insert(at, running, self._database.now_ns(at))
            else:
                save(at, execs, "exec_id", there, running)
            if asked.purpose is not ExecPurpose.TEST:
                save(at, attempts, "attempt_id", attempt, replace(attempt, intent=True))
                save(at, forks, "fork_id", fork, _running(fork))
            return running

    def finish(self, claimed: Claimed, ended: Exec) -> bool:
        with self._database.write() as at:
            fork, attempt = held(at, claimed)
            done = at.execute(
                update(execs)
                .where(execs.c.exec_id == ended.exec_id, is_unfinished)
                .values(state=ExecState.ENDED, result=ended.result, file=ended.file)
            )
            idle = fork.state is ForkState.RUNNING and claimed.run.spec.hold_ns is not None
            if idle and not _runs_any(at, attempt.attempt_id):
                ready = replace(fork, state=move(fork.state, ForkState.READY))
                save(at, forks, "fork_id", fork, ready)
            return done.rowcount == 1

    def unfinished(self, attempt_id: str) -> tuple[Exec, ...]:
        with self._database.read() as at:
            rows = at.execute(
                select(execs)
                .where(execs.c.attempt_id == attempt_id, is_unfinished)
                .order_by(execs.c.asked_ns, execs.c.exec_id)
            )
            return tuple(noun_of(Exec, row) for row in rows)

    def find(self, exec_id: str) -> Exec | None:
        with self._database.read() as at:
            return find_exec(at, exec_id)

    def get(self, project_id: str, fork_id: str, exec_id: str) -> Exec:
        found = self.find(exec_id)
        if found is None or (found.project_id, found.fork_id) != (project_id, fork_id):
            raise NotFound("unknown_exec", f"fork {fork_id} has no command {exec_id}")
        return found

    def queued_on(self, host_id: str) -> tuple[Exec, ...]:
        with self._database.read() as at:
            rows = at.execute(
                select(execs)
                .join(attempts, attempts.c.attempt_id == execs.c.attempt_id)
                .where(
                    attempts.c.host_id == host_id,
                    is_open,
                    is_unfinished,
                    execs.c.state == ExecState.QUEUED,
                )
                .order_by(execs.c.asked_ns, execs.c.exec_id)
            )
            return tuple(noun_of(Exec, row) for row in rows)


def _fork(at: Connection, asked: Exec) -> Fork:
    """The fork of a request, locked. Raises NotFound, Conflict(fork_not_held)."""
    found = lock_forks(at, forks.c.fork_id == asked.fork_id, forks.c.project_id == asked.project_id)
    if not found:
        raise NotFound("unknown_fork", f"there is no fork {asked.fork_id}")
    fork = found[0]
    held_ns = at.execute(select(runs.c.hold_ns).where(runs.c.run_id == fork.run_id)).scalar_one()
    if held_ns is None or fork.role is Role.TEMPLATE:
        raise Conflict("fork_not_held", f"fork {fork.fork_id} is not a held fork")
    return fork


def _same(there: Exec, asked: Exec) -> Exec:
    """The row of a command that is asked for again. Raises Conflict(exec_id_taken) if it is another command."""
    if (there.fork_id, there.purpose, there.spec) != (asked.fork_id, asked.purpose, asked.spec):
        raise Conflict("exec_id_taken", f"{asked.exec_id} is the id of another command")
    return there


def _check_room(at: Connection, fork: Fork) -> None:
    """Raises what keeps a fork from taking one command more."""
    if fork.state is ForkState.ENDED or fork.stop_asked is not None:
        raise over(fork)
    if fork.state not in HANDED_OVER:
        raise NotYet("fork_not_ready", f"fork {fork.fork_id} is {fork.state.value}")
    count = select(func.count()).where(execs.c.attempt_id == fork.attempt_id, is_unfinished)
    if at.execute(count).scalar_one() >= MAX_PARALLEL_EXECS:
        raise NotYet(
            "too_many_execs",
            f"fork {fork.fork_id} runs {MAX_PARALLEL_EXECS} commands, which is the most at once",
        )


def _insert(at: Connection, new: Exec, now_ns: int) -> None:
    at.execute(insert(execs).values(columns_of(new) | {"asked_ns": now_ns}))


def _running(fork: Fork) -> Fork:
    if fork.state is not ForkState.READY:
        return fork
    return replace(fork, state=move(fork.state, ForkState.RUNNING))


def _runs_any(at: Connection, attempt_id: str) -> bool:
    running = select(execs.c.exec_id).where(
        execs.c.attempt_id == attempt_id,
        is_unfinished,
        execs.c.state == ExecState.RUNNING,
    )
    return at.execute(running.limit(1)).first() is not None
