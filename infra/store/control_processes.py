"""API and billing processes, with the release of each: who must have ended before the schema loses what it needs."""

from __future__ import annotations

from sqlalchemy import delete, select, update

from app.domain.money import NS_PER_HOUR
from app.domain.process import ControlProcess
from infra.store.engine import Database
from infra.store.tables import control_processes

FORGOTTEN_NS = 24 * NS_PER_HOUR

_row = control_processes.c


class ControlProcesses:
    """`app.ports.deployment.Processes`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, process: ControlProcess) -> None:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            old = (_row.process_id == process.process_id) | (
                _row.heartbeat_ns < now_ns - FORGOTTEN_NS
            )
            at.execute(delete(control_processes).where(old))
            at.execute(
                control_processes.insert().values(
                    process_id=process.process_id,
                    component=process.component,
                    machine=process.machine,
                    pid=process.pid,
                    release=process.release,
                    revision=process.revision,
                    started_ns=now_ns,
                    heartbeat_ns=now_ns,
                )
            )

    def beat(self, process_id: str) -> bool:
        beaten = update(control_processes).where(_row.process_id == process_id)
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            return at.execute(beaten.values(heartbeat_ns=now_ns)).rowcount == 1

    def end(self, process_id: str) -> None:
        with self._database.write() as at:
            at.execute(delete(control_processes).where(_row.process_id == process_id))

    def all(self) -> tuple[ControlProcess, ...]:
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            rows = at.execute(select(control_processes).order_by(_row.component, _row.process_id))
            return tuple(
                ControlProcess(
                    process_id=row.process_id,
                    component=row.component,
                    machine=row.machine,
                    pid=row.pid,
                    release=row.release,
                    revision=row.revision,
                    heartbeat_age_ns=max(0, now_ns - row.heartbeat_ns),
                )
                for row in rows
            )
