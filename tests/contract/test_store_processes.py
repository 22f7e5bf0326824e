"""Many processes at once, as in a deployment, killed at random and replaced: no update is lost, nothing is charged
twice, and whoever looks at the rows meanwhile finds every law kept.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import text

from app.domain.money import NS_PER_SECOND, cost_micros
from app.domain.report import AttemptLine
from app.domain.run import Run, RunState, StopWhen
from infra.fakes.clock import ManualClock
from infra.store import create_store
from tests import builders as a
from tests.contract import crowd
from tests.contract.event_laws import Follower
from tests.contract.rows import Rows
from tests.contract.worker import FastClock

WORKERS, KILLS = 8, 40
RUNS, FORKS_OF_RUN = 8, 125
# The run that stops itself when so large a share of its forks was failed by their environment.
STRICT, STRICT_SHARE = 2, 0.03
# A third of what the forks could use: what early ones leave is shared out to the others.
BUDGET = FORKS_OF_RUN * 33 * a.MICROS_PER_SECOND
LOOK_EVERY_S = 0.4
# Every event of the day is read again for it: at some looks, and at the end.
TALES_EVERY = 20
LIMIT_S = 240


class CrowdFailedError(Exception):
    """A worker ended for an error; its last words."""


@pytest.fixture
def busy(url: str) -> Iterator[Rows]:
    """Rows that are looked at while others write them."""
    store = create_store(url, key_secret=b"k", now_ns=FastClock(time.time_ns()).now_ns)
    yield Rows(store, ManualClock())
    store.close()


def test_a_crowd_that_is_killed_at_random_keeps_the_laws(
    busy: Rows, url: str, tmp_path: Path
) -> None:
    busy.store.projects.set_limits("limited", {"max_forks": 5 * WORKERS})
    started = [_start(busy, number) for number in range(RUNS)]
    deadlocks = _deadlocks(busy)
    followers = [Follower(busy.store, run.project_id, run.run_id) for run in started]
    # On PostgreSQL each worker does what it does as a host by that host's own login.
    logins = ("--logins",) if url.startswith("postgresql") else ()
    told = _watched(busy, url, tmp_path, *logins, followers=followers)
    assert told["kills"] == KILLS
    busy.settle()
    busy.check_laws()
    busy.check_events()
    for run, follower in zip(started, followers, strict=True):
        _check_end(busy, run)
        follower.read()
        assert follower.final
    stopped = busy.store.runs.get(started[STRICT].project_id, started[STRICT].run_id).stopped
    assert stopped is not None
    assert stopped.env_failed >= STRICT_SHARE * FORKS_OF_RUN
    assert _deadlocks(busy) == deadlocks


def test_a_careless_writer_in_the_crowd_is_found_out(busy: Rows, url: str, tmp_path: Path) -> None:
    """It gets a row, changes it and writes what it became: a constraint refuses it, or the laws are seen broken."""
    for number in range(2):
        _start(busy, number)
    with pytest.raises((AssertionError, CrowdFailedError)) as found:
        _watched(busy, url, tmp_path, "--careless")
    if found.type is CrowdFailedError:
        assert "ck_run_" in str(found.value)


def _start(rows: Rows, number: int) -> Run:
    """A run of one of two projects; what the last one's forks wait for is not the end of the day."""
    project_id = (a.PROJECT, "limited")[number % 2]
    timeout_ns = (100 if number == RUNS - 1 else 100_000) * NS_PER_SECOND
    rule = StopWhen(STRICT_SHARE) if number == STRICT else None
    run, forks = a.step(FORKS_OF_RUN, BUDGET, queue_timeout_ns=timeout_ns, stop_when=rule)
    run = replace(run, project_id=project_id)
    rows.store.runs.start(run, tuple(replace(each, project_id=project_id) for each in forks), None)
    return run


def _watched(
    rows: Rows, url: str, tmp_path: Path, *more: str, followers: Sequence[Follower] = ()
) -> dict[str, int]:
    """Let the crowd do its work, and look at the laws until it is done; what it tells of itself."""
    seed = random.SystemRandom().randrange(1 << 32)
    counts = (f"--workers={WORKERS}", f"--kills={KILLS}", f"--seed={seed}")
    command = (
        sys.executable,
        "-m",
        crowd.__name__,
        url,
        *counts,
        f"--epoch-ns={time.time_ns()}",
        *more,
    )
    sys.stdout.write(f"{' '.join(command)}\n")
    said = tmp_path / "said"
    with (
        said.open("w") as err,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err) as process,
    ):
        try:
            _look_until_done(rows, process, followers)
        finally:
            process.terminate()
        answer, _ = process.communicate()
    if process.returncode:
        raise CrowdFailedError(said.read_text())
    return dict(json.loads(answer))


def _look_until_done(
    rows: Rows, process: subprocess.Popen[bytes], followers: Sequence[Follower]
) -> None:
    until = time.monotonic() + LIMIT_S
    for look in count():
        if process.poll() is not None:
            return
        assert time.monotonic() < until, "the crowd does not come to its end"
        rows.check_laws()
        if look % TALES_EVERY == 0:
            rows.check_events()
        for follower in followers:
            follower.read()
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_EVERY_S)


def _check_end(rows: Rows, started: Run) -> None:
    run = rows.store.runs.get(started.project_id, started.run_id)
    assert run.state is RunState.ENDED
    assert run.pool_micros + run.charged_micros == BUDGET
    forks = rows.store.runs.forks(run.run_id)
    assert len(forks) == FORKS_OF_RUN
    assert {fork.grant_micros for fork in forks} == {0}
    assert None not in {fork.outcome for fork in forks}
    lines = rows.store.runs.attempts(run.run_id)
    assert sum(line.total_micros for line in lines) == run.charged_micros
    for line in lines:
        assert line.total_micros == _price(line)
        assert line.attempt.lease_ns >= 10 * NS_PER_SECOND


def _price(line: AttemptLine) -> int:
    """Of a life, rounded up once, and never of more than its lease."""
    attempt = line.attempt
    assert attempt.closed_boot_ns is not None
    lived_ns = min(attempt.closed_boot_ns - attempt.opened_boot_ns, attempt.lease_ns)
    return cost_micros(lived_ns, attempt.micros_per_hour)


def _deadlocks(rows: Rows) -> int:
    """How many transactions PostgreSQL ended to undo a deadlock; SQLite has one writer at a time."""
    with rows.store.database.read() as at:
        if at.dialect.name == "sqlite":
            return 0
        told = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(at.execute(told).scalar_one())
