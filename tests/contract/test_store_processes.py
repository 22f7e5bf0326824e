"""Several processes at once, as in a deployment: no update is lost, no machine is claimed twice."""

from __future__ import annotations

import subprocess
import sys

from app.domain.fork import EndReason
from app.domain.run import RunState
from tests.contract import worker
from tests.contract.rows import Rows

PROCESSES = 3


def test_processes_at_once_keep_the_laws(rows: Rows, url: str) -> None:
    rows.host(slots=12)
    runs = [rows.start(10, budget_micros=400_000) for _ in range(3)]
    command = [sys.executable, "-m", worker.__name__, url]
    workers = [subprocess.Popen([*command, str(seed)]) for seed in range(PROCESSES)]
    assert [each.wait(timeout=100) for each in workers] == [0] * PROCESSES
    rows.check_laws()
    # What each process closed is what the ledger has: its life of whole micro-dollars, once.
    lines = [line for run in runs for line in rows.store.runs.attempts(run.run_id)]
    assert len(lines) > PROCESSES
    assert all(line.attempt.closed_boot_ns is not None for line in lines)
    for run in runs:
        rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED)
    assert {rows.run(run.run_id).state for run in runs} == {RunState.ENDED}
