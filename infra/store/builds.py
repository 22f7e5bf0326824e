"""Builds on their way to a snapshot."""

from __future__ import annotations

from dataclasses import fields, replace

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from app.domain.account import Receipt
from app.domain.run import Fork, Run, RunState
from app.domain.snapshot import Build, BuildError, BuildState, Candidate, LogLine, Snapshot
from app.errors import Conflict, NotFound
from infra.store.engine import AnyRow, Database, locked
from infra.store.readable import readable
from infra.store.receipts import keep_receipt
from infra.store.rows import columns_of, noun_of
from infra.store.runs import insert_run
from infra.store.tables import build_lines, builds, forks, is_unsettled, projects, runs, snapshots

MAX_LINES = 2000
MAX_LINE_BYTES = 8 * 1024
ORDER = (BuildState.QUEUED, BuildState.BUILDING, BuildState.VERIFYING)


class Builds:
    """`app.ports.store.Builds`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, build: Build, run: Run, template: Fork, receipt: Receipt | None) -> None:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            keep_receipt(at, build.project_id, receipt, now_ns)
            insert_run(at, run, (template,), now_ns)
            row = columns_of(replace(build, created_ns=now_ns))
            del row["log"]
            at.execute(insert(builds).values(row))

    def get(self, project_id: str, build_id: str) -> Build:
        with self._database.read() as at:
            build = _find(at, builds.c.build_id == build_id, builds.c.project_id == project_id)
            if build is None:
                raise NotFound("unknown_build", f"there is no build {build_id}")
            rows = at.execute(
                select(build_lines)
                .where(build_lines.c.build_id == build_id)
                .order_by(build_lines.c.n)
            )
            return replace(build, log=tuple(noun_of(LogLine, row) for row in rows))

    def find(self, build_id: str) -> Build | None:
        with self._database.read() as at:
            return _find(at, builds.c.build_id == build_id)

    def of_run(self, run_id: str) -> Build | None:
        with self._database.read() as at:
            return _find(at, builds.c.run_id == run_id)

    def say(self, build_id: str, step: str, text: str) -> None:
        with self._database.write() as at:
            at.execute(
                update(builds)
                .where(builds.c.build_id == build_id)
                .values(step=step, lines=builds.c.lines + 1)
            )
            n = at.execute(
                select(builds.c.lines).where(builds.c.build_id == build_id)
            ).scalar_one_or_none()
            if n is None:
                raise NotFound("unknown_build", f"there is no build {build_id}")
            line = {"build_id": build_id, "n": n, "step": step, "text": _short(text)}
            at.execute(insert(build_lines).values(line))
            at.execute(
                delete(build_lines).where(
                    build_lines.c.build_id == build_id, build_lines.c.n <= n - MAX_LINES
                )
            )

    def advance(self, build_id: str, state: BuildState) -> None:
        earlier = ORDER[: ORDER.index(state)]
        with self._database.write() as at:
            at.execute(
                update(builds)
                .where(builds.c.build_id == build_id, builds.c.state.in_(earlier))
                .values(state=state)
            )

    def frozen(self, build_id: str, candidate: Candidate) -> None:
        with self._database.write() as at:
            at.execute(
                update(builds)
                .where(builds.c.build_id == build_id, is_unsettled)
                .values(candidate=candidate)
            )

    def accept(self, build_id: str, snapshot: Snapshot) -> Snapshot:
        with self._database.write() as at:
            build = _find(at, builds.c.build_id == build_id, lock=True)
            if build is None:
                raise NotFound("unknown_build", f"there is no build {build_id}")
            if build.state is BuildState.VERIFIED:
                return _accepted(at, build)
            if build.state.final:
                raise Conflict("build_ended", f"build {build_id} has ended: {build.state.value}")
            now_ns = self._database.now_ns(at)
            version = _next_version(at, snapshot)
            new = replace(snapshot, version=version, created_ns=now_ns)
            at.execute(insert(snapshots).values(columns_of(new) | {"ref": new.ref}))
            _end(at, build_id, state=BuildState.VERIFIED, snapshot_ref=new.ref)
            return new

    def refuse(self, build_id: str, state: BuildState, error: BuildError) -> bool:
        if not state.final or state is BuildState.VERIFIED:
            raise ValueError(f"a build is not refused by becoming {state.value}")
        with self._database.write() as at:
            return _end(at, build_id, state=state, error=error)

    def unsettled(self) -> tuple[tuple[Build, str | None], ...]:
        with self._database.read() as at:
            rows = (
                select(builds, forks.c.host_id)
                .join(runs, runs.c.run_id == builds.c.run_id)
                .join(forks, forks.c.fork_id == builds.c.template_fork_id)
                .where(is_unsettled, runs.c.state == RunState.ENDED)
                .order_by(builds.c.created_ns, builds.c.build_id)
            )
            return readable(at, rows, builds.c.build_id, lambda row: (_build_of(row), row.host_id))


def _find(at: Connection, *conditions: ColumnElement[bool], lock: bool = False) -> Build | None:
    statement = select(builds).where(*conditions)
    row = at.execute(locked(statement) if lock else statement).one_or_none()
    return None if row is None else _build_of(row)


def _build_of(row: AnyRow) -> Build:
    """A build's row, without its log."""
    names = (field.name for field in fields(Build) if field.name != "log")
    return Build(**{name: getattr(row, name) for name in names})


def _short(line: str) -> str:
    cut = line.encode("utf-8", "replace")[:MAX_LINE_BYTES]
    return cut.decode("utf-8", "ignore")


def _accepted(at: Connection, build: Build) -> Snapshot:
    row = at.execute(
        select(snapshots).where(
            snapshots.c.project_id == build.project_id, snapshots.c.ref == build.snapshot_ref
        )
    ).one()
    return noun_of(Snapshot, row)


def _next_version(at: Connection, snapshot: Snapshot) -> int:
    """One more than any version that the name ever had; the project's row, locked, lets one build at a time ask."""
    project_id = snapshot.project_id
    at.execute(locked(select(projects.c.project_id).where(projects.c.project_id == project_id)))
    newest = at.execute(
        select(func.max(snapshots.c.version)).where(
            snapshots.c.project_id == project_id, snapshots.c.name == snapshot.name
        )
    ).scalar_one()
    return 1 if newest is None else int(newest) + 1


def _end(at: Connection, build_id: str, **values: object) -> bool:
    ended = at.execute(
        update(builds).where(builds.c.build_id == build_id, is_unsettled).values(**values)
    )
    return ended.rowcount == 1
