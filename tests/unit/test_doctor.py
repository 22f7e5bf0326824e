"""`promigence-server doctor` on the files and rows of a stack of which nothing runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update
from typer.testing import CliRunner

from app.domain.disk import DiskRoom
from app.domain.leak import GRACE_NS, LeakKind
from app.errors import NotFound
from infra import wiring
from infra.settings import load
from infra.store import Stores, create_store
from infra.store.tables import forks, hosts
from tests import builders as a
from workers import examination
from workers.server import app

PATIENCE_S = 10


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is on its way to anywhere: the two looks need no time between them."""
    monkeypatch.setattr(examination, "PAUSE_S", 0.0)


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A directory with a migrated database, simulated machines, and nothing that runs."""
    (tmp_path / "settings.json").write_text(json.dumps({"machines": "fake"}))
    wiring.migrate(load(tmp_path))
    return tmp_path


@pytest.fixture
def store(stack: Path) -> Iterator[Stores]:
    made = create_store(load(stack).database)
    made.hosts.register(a.fingerprint(load(stack).host_id), 16)
    yield made
    made.close()


def doctor(stack: Path, *words: str, code: int) -> Any:
    done = CliRunner().invoke(app, ["doctor", "--json", *words, "--dir", str(stack)])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def kinds(told: Any) -> list[str]:
    return sorted(finding["kind"] for finding in told["findings"])


def test_where_nothing_is_wrong_it_says_so(stack: Path, store: Stores) -> None:
    told = doctor(stack, code=0)
    assert told["clean"]
    assert told["findings"] == []
    assert any("rows are read directly" in note for note in told["notes"])
    done = CliRunner().invoke(app, ["doctor", "--dir", str(stack)])
    assert done.exit_code == 0
    assert "nothing is wrong" in done.stdout


def test_where_there_is_no_stack_it_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    error = CliRunner().invoke(app, ["doctor", "--dir", str(absent)]).exception
    assert isinstance(error, NotFound)
    assert not absent.exists()


@pytest.fixture
def planted(stack: Path, store: Stores) -> Iterator[dict[str, Any]]:
    """One leak of each kind that needs no real machine, and a look-alike beside each that is old or in use."""
    old = time.time() - GRACE_NS[LeakKind.BLOB] / 1e9 - 60
    program = stack / "qemu-system-x86_64"
    shutil.copy(shutil.which("sleep") or "", program)
    home = stack / "machines" / "att_gone"
    home.mkdir(parents=True)
    process = subprocess.Popen([program, "600"], cwd=home)
    home.rmdir()
    elsewhere = subprocess.Popen([program, "600"], cwd=stack)
    (stack / "bundles" / "staged" / "build_unowned").mkdir(parents=True)
    build, run, template = a.build()
    store.builds.start(build, run, template, None)
    (stack / "bundles" / "staged" / build.build_id).mkdir()
    blobs = stack / "blobs" / "ab"
    blobs.mkdir(parents=True)
    for name in ("ab" + "0" * 62, "ab" + "1" * 62):
        (blobs / name).write_text(name)
    os.utime(blobs / ("ab" + "0" * 62), (old, old))
    other, _ = a.step(1, 0)
    store.runs.start(other, _, None)
    with store.database.write() as at:
        at.execute(update(hosts).values(free_slots=3))
        at.execute(delete(forks).where(forks.c.run_id == other.run_id))
    yield {"process": process, "elsewhere": elsewhere, "build": build, "run": other}
    for each in (process, elsewhere):
        each.kill()
        each.wait(PATIENCE_S)


LEAKS = ["blob", "bundle", "host_room", "process", "run_without_forks"]


def test_it_reports_without_touching_and_mends_when_told(
    stack: Path, store: Stores, planted: dict[str, Any]
) -> None:
    told = doctor(stack, code=1)
    assert kinds(told) == LEAKS
    assert not any(finding["mended"] for finding in told["findings"])
    assert all(finding["remedy"].startswith("it would be ") for finding in told["findings"])
    assert planted["process"].poll() is None
    assert kinds(doctor(stack, code=1)) == LEAKS  # it changed nothing

    told = doctor(stack, "--fix", code=0)
    assert kinds(told) == LEAKS
    assert all(finding["mended"] for finding in told["findings"])
    assert planted["process"].wait(PATIENCE_S) == -9
    assert store.hosts.list()[0].free_slots == 16
    assert doctor(stack, code=0)["findings"] == []

    assert planted["elsewhere"].poll() is None
    staged = [entry.name for entry in (stack / "bundles" / "staged").iterdir()]
    assert staged == [planted["build"].build_id]
    assert [path.name for path in (stack / "blobs" / "ab").iterdir()] == ["ab" + "1" * 62]


def test_what_is_shown_to_people_names_each_and_its_remedy(
    stack: Path, store: Stores, planted: dict[str, Any]
) -> None:
    shown = CliRunner().invoke(app, ["doctor", "--dir", str(stack)]).stdout
    assert planted["run"].run_id in shown
    assert "counted again from the forks that hold it" in shown
    assert "mended" in CliRunner().invoke(app, ["doctor", "--fix", "--dir", str(stack)]).stdout


def test_without_rows_nothing_is_called_a_leak(stack: Path) -> None:
    (stack / "bundles" / "staged" / "build_unowned").mkdir(parents=True)
    away = {"machines": "fake", "database_url": "postgresql+psycopg://x:x@127.0.0.1:1/none"}
    (stack / "settings.json").write_text(json.dumps(away))
    told = doctor(stack, "--fix", code=1)
    assert kinds(told) == ["database_away"]
    assert any("0 machines (0 live), 1 bundles" in note for note in told["notes"])
    assert (stack / "bundles" / "staged" / "build_unowned").is_dir()


def test_an_operators_own_queue_that_is_away_is_told(stack: Path, store: Stores) -> None:
    own = {"machines": "fake", "redis_url": "redis://127.0.0.1:1/0"}
    (stack / "settings.json").write_text(json.dumps(own))
    assert kinds(doctor(stack, code=1)) == ["queue_away"]


def test_a_host_in_quarantine_and_forks_that_wait_for_a_worker_are_told(
    stack: Path, store: Stores
) -> None:
    host_id = load(stack).host_id
    store.hosts.quarantine(host_id, "new memory")
    (finding,) = doctor(stack, code=1)["findings"]
    assert (finding["kind"], finding["name"]) == ("host_in_quarantine", host_id)
    assert finding["detail"] == "new memory"
    store.hosts.release(host_id)
    run, its_forks = a.step(2)
    store.runs.start(run, its_forks, None)
    assert doctor(stack, code=0)["findings"] == []  # the host was heard of just now
    with store.database.write() as at:
        at.execute(update(hosts).values(heartbeat_ns=time.time_ns() - 60 * 10**9))
    (finding,) = doctor(stack, code=1)["findings"]
    assert finding["kind"] == "no_worker"
    assert "2 queued forks" in finding["detail"]


def test_a_disk_that_is_nearly_full_is_told(stack: Path, store: Stores) -> None:
    wants_more = {"machines": "fake", "disk_reserve_gib": 1 << 30}
    (stack / "settings.json").write_text(json.dumps(wants_more))
    assert kinds(doctor(stack, code=1)) == ["disk_nearly_full"]


def test_a_host_that_is_short_of_disk_is_told_wherever_it_is(stack: Path, store: Stores) -> None:
    store.hosts.heartbeat(load(stack).host_id, (), disk=DiskRoom(1 << 29, 2 << 30))
    (finding,) = doctor(stack, code=1)["findings"]
    assert finding["kind"] == "host_disk_nearly_full"
    assert "0.5 GiB left" in finding["detail"]
    store.hosts.heartbeat(load(stack).host_id, (), disk=DiskRoom(3 << 30, 2 << 30))
    assert doctor(stack, code=0)["findings"] == []


def test_a_host_on_which_no_machine_can_run_is_told(stack: Path, store: Stores) -> None:
    real = {"machines": "real", "products": str(stack / "none")}
    (stack / "settings.json").write_text(json.dumps(real))
    (finding,) = doctor(stack, code=1)["findings"]
    assert finding["kind"] == "not_set_up"
    assert "make setup" in finding["detail"]
