"""Commands and files of machines: asked, intended, ended."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from app.domain.audit import Entry
from app.domain.event import Event, EventKind
from app.domain.fork import ForkState, move
from app.domain.money import NS_PER_SECOND
from app.domain.run import (
    LOOKS,
    MAX_PARALLEL_EXECS,
    Claimed,
    Exec,
    ExecPurpose,
    ExecResult,
    ExecState,
    Fork,
    Role,
)
from app.errors import Conflict, NotFound, NotYet
from infra.store.audit import write_entry
from infra.store.ending import over
from infra.store.engine import Database
from infra.store.events import of_fork, tell
from infra.store.fence import held
from infra.store.looking import commands_of
from infra.store.rows import columns_of, find_exec, lock_forks, noun_of, save
from infra.store.tables import attempts, execs, forks, is_open, is_unfinished, runs

HANDED_OVER = (ForkState.READY, ForkState.RUNNING)
# Whoever asked for a look has read it, or has gone: nobody waits for one as long.
LOOK_KEPT_NS = 120 * NS_PER_SECOND


class Execs:
    """`app.ports.store.Execs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def request(self, asked: Exec, entry: Entry | None = None) -> tuple[Exec, str]:
        with self._database.write() as at:
            fork = _fork(at, asked)
            there = find_exec(at, asked.exec_id)
            if there is not None:
                return _same(there, asked), _claim_of(at, there.attempt_id)
            if asked.purpose in LOOKS:
                _check_look(at, fork, self._database.now_ns(at))
            else:
                _check_room(at, fork)
            assert fork.attempt_id is not None  # it was checked to have a machine
            new = replace(asked, attempt_id=fork.attempt_id, state=ExecState.QUEUED)
            now_ns = self._database.now_ns(at)
            _insert(at, new, now_ns)
            write_entry(at, entry, now_ns)
            return new, _claim_of(at, fork.attempt_id)

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
            now_ns, after = self._database.now_ns(at), fork
            if there is None:
                _insert(at, running, now_ns)
            else:
                save(at, execs, "exec_id", there, running)
            if asked.purpose is not ExecPurpose.TEST:
                # Once its verdict is known, what is run in it is nobody's task.
                intent = attempt.intent or fork.kept is None
                save(at, attempts, "attempt_id", attempt, replace(attempt, intent=intent))
                after = _running(fork)
                save(at, forks, "fork_id", fork, after)
            tell(at, [_of_exec(EventKind.COMMAND_INTENDED, after, running)])
            return running

    def finish(self, claimed: Claimed, ended: Exec) -> bool:
        with self._database.write() as at:
            fork, attempt = held(at, claimed)
            done = at.execute(
                update(execs)
                .where(execs.c.exec_id == ended.exec_id, is_unfinished)
                .values(state=ExecState.ENDED, result=ended.result, file=ended.file)
            )
            if done.rowcount == 0:
                return False
            if ended.purpose in LOOKS:
                return True  # it was no command: nothing about its fork has changed
            held_over = claimed.run.spec.hold_ns is not None or fork.kept is not None
            idle, after = fork.state is ForkState.RUNNING and held_over, fork
            if idle and not _runs_any(at, attempt.attempt_id):
                after = replace(fork, state=move(fork.state, ForkState.READY))
                save(at, forks, "fork_id", fork, after)
            told = _of_exec(EventKind.COMMAND_ENDED, after, ended, **_end(ended.result))
            tell(at, [told])
            return True

    def note(self, claimed: Claimed, seen: Exec) -> None:
        with self._database.write() as at:
            held(at, claimed)
            at.execute(
                update(execs)
                .where(execs.c.exec_id == seen.exec_id, is_unfinished)
                .values(result=seen.result)
            )

    def of_fork(self, fork_id: str, limit: int) -> tuple[Exec, ...]:
        with self._database.read() as at:
            return commands_of(at, fork_id, limit)

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

    def queued_for(self, host_id: str, claim: str) -> tuple[Exec, ...]:
        with self._database.read() as at:
            rows = at.execute(
                select(execs)
                .join(attempts, attempts.c.attempt_id == execs.c.attempt_id)
                .where(
                    attempts.c.host_id == host_id,
                    attempts.c.claim == claim,
                    is_open,
                    is_unfinished,
                    execs.c.state == ExecState.QUEUED,
                )
                .order_by(execs.c.asked_ns, execs.c.exec_id)
            )
            return tuple(noun_of(Exec, row) for row in rows)


def _fork(at: Connection, asked: Exec) -> Fork:
    """The fork of a request, locked. Raises NotFound, Conflict(fork_not_held) unless it is held, kept, or looked at."""
    found = lock_forks(at, forks.c.fork_id == asked.fork_id, forks.c.project_id == asked.project_id)
    if not found:
        raise NotFound("unknown_fork", f"there is no fork {asked.fork_id}")
    fork = found[0]
    held_ns = at.execute(select(runs.c.hold_ns).where(runs.c.run_id == fork.run_id)).scalar_one()
    handed_over = held_ns is not None or fork.kept is not None or asked.purpose in LOOKS
    if not handed_over or fork.role is Role.TEMPLATE:
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
    if _unfinished(at, fork, execs.c.purpose.not_in(LOOKS)) >= MAX_PARALLEL_EXECS:
        raise NotYet(
            "too_many_execs",
            f"fork {fork.fork_id} runs {MAX_PARALLEL_EXECS} commands, which is the most at once",
        )


def _check_look(at: Connection, fork: Fork, now_ns: int) -> None:
    """Raises what keeps a fork from being looked at; looks that were answered a while ago are removed."""
    if fork.state is ForkState.ENDED:
        raise over(fork)
    if fork.attempt_id is None:
        raise NotYet("fork_not_ready", f"fork {fork.fork_id} has no machine now")
    looks = execs.c.purpose.in_(LOOKS)
    if _unfinished(at, fork, looks) >= MAX_PARALLEL_EXECS:
        raise NotYet("too_many_execs", f"fork {fork.fork_id} is looked at by as many as may")
    read_ns = now_ns - LOOK_KEPT_NS
    at.execute(
        delete(execs).where(execs.c.fork_id == fork.fork_id, looks, execs.c.asked_ns < read_ns)
    )


def _unfinished(at: Connection, fork: Fork, of_kind: ColumnElement[bool]) -> int:
    count = select(func.count()).where(execs.c.attempt_id == fork.attempt_id, is_unfinished)
    return int(at.execute(count.where(of_kind)).scalar_one())


def _claim_of(at: Connection, attempt_id: str) -> str:
    claim = select(attempts.c.claim).where(attempts.c.attempt_id == attempt_id)
    return str(at.execute(claim).scalar_one())


def _insert(at: Connection, new: Exec, now_ns: int) -> None:
    at.execute(insert(execs).values(columns_of(new) | {"asked_ns": now_ns}))


def _running(fork: Fork) -> Fork:
    if fork.state is not ForkState.READY:
        return fork
    return replace(fork, state=move(fork.state, ForkState.RUNNING))


def _of_exec(kind: EventKind, fork: Fork, it: Exec, **more: object) -> Event:
    """A command's beginning or end, with the state that its fork is in then."""
    told = {"exec_id": it.exec_id, "purpose": it.purpose.value, "state": fork.state.value}
    return replace(of_fork(kind, fork), data=told | more)


def _end(result: ExecResult | None) -> dict[str, object]:
    if result is None:
        return {}
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "seconds": result.duration_ns / NS_PER_SECOND,
        "refused": None if result.error is None else result.error[0],
    }


def _runs_any(at: Connection, attempt_id: str) -> bool:
    running = select(execs.c.exec_id).where(
        execs.c.attempt_id == attempt_id,
        is_unfinished,
        execs.c.state == ExecState.RUNNING,
    )
    return at.execute(running.limit(1)).first() is not None
