"""The tables that statements are written on, and the conditions that polls share.

Statements are written on tables and not on mapped objects: money moves by relative updates, and no session's copy of a
row stands between the lock and what is read under it.
"""

from __future__ import annotations

from typing import cast

from sqlalchemy import Table, literal_column

from app.domain.snapshot import BuildState
from infra.store.base import Row
from infra.store.callers import (
    AuditRow,
    KeyRow,
    ProjectMonthRow,
    ProjectRow,
    ReceiptRow,
    UploadRow,
)
from infra.store.history import EventCountRow, EventRow
from infra.store.holdings import ResourceRow
from infra.store.hosting import HostRow
from infra.store.processes import ControlProcessRow, DeploymentRow, WorkerRow
from infra.store.schema import (
    AttemptRow,
    BuildRow,
    ExecRow,
    ForkRow,
    LabelRow,
    LedgerRow,
    LineRow,
    QuoteRow,
    RunRow,
    SampleRow,
    SnapshotRow,
)
from infra.store.targets import TrialRow, WarmTargetRow


def _table(row: type[Row]) -> Table:
    return cast(Table, row.__table__)  # type: ignore[attr-defined]


projects = _table(ProjectRow)
project_months = _table(ProjectMonthRow)
api_keys = _table(KeyRow)
receipts = _table(ReceiptRow)
uploads = _table(UploadRow)
audit = _table(AuditRow)
snapshots = _table(SnapshotRow)
quotes = _table(QuoteRow)
runs = _table(RunRow)
labels = _table(LabelRow)
hosts = _table(HostRow)
forks = _table(ForkRow)
attempts = _table(AttemptRow)
samples = _table(SampleRow)
ledger = _table(LedgerRow)
execs = _table(ExecRow)
builds = _table(BuildRow)
build_lines = _table(LineRow)
events = _table(EventRow)
event_counts = _table(EventCountRow)
workers = _table(WorkerRow)
control_processes = _table(ControlProcessRow)
deployments = _table(DeploymentRow)
warm_targets = _table(WarmTargetRow)
trials = _table(TrialRow)
resources = _table(ResourceRow)

METADATA = Row.metadata

# Words in these conditions are literals: a partial index serves only a condition that it can see.
is_active = runs.c.state == literal_column("'active'")
is_live = forks.c.state != literal_column("'ended'")
is_queued = forks.c.state == literal_column("'queued'")
is_open = attempts.c.closed_boot_ns.is_(None)
is_unfinished = execs.c.state.in_([literal_column("'queued'"), literal_column("'running'")])
is_unsettled = builds.c.state.in_(
    [literal_column(f"'{state.value}'") for state in BuildState if not state.final]
)
