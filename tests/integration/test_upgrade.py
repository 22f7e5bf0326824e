"""`upgrade` and `restored` where nothing runs: what they do to a database, and what they refuse."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from sqlalchemy import text

from app.domain.deployment import FIRST_EPOCH, Deployment, Seen
from app.domain.process import ControlProcess
from app.errors import Conflict, PromigenceError
from infra.epochs import CONTROL, EpochMemory
from infra.store import Stores, create_store
from infra.store.migrate import known_revision, upgrade
from workers.stack import restore
from workers.stack import upgrade as upgrading

CONTROL_PARTS, HOST_PARTS = ["api", "billing"], ["worker"]


class Place:
    """A directory with settings and a database, and nothing that runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store: Stores = create_store(f"sqlite:///{directory / 'promigence.db'}")
        self.steps: list[tuple[str, dict[str, object]]] = []
        self.of(CONTROL_PARTS)

    def of(self, parts: list[str]) -> None:
        told = {"parts": parts, "machines": "fake", "host_id": "host0"}
        (self.directory / "settings.json").write_text(json.dumps(told))

    def upgrade(self) -> upgrading.Outlook:
        self.steps.clear()
        return upgrading.upgrade(
            self.directory, lambda step, about: self.steps.append((step, about))
        )

    def now(self) -> Deployment:
        return self.store.deployments.now()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_database_of_the_release_before_is_migrated_once(place: Place) -> None:
    upgrade(place.store.database, "0015")
    looked = upgrading.check(place.directory)
    assert (looked.expand[0], looked.done, looked.parts) == ("0016", False, ())
    after = place.upgrade()
    assert place.steps == [("migrated", {"revisions": list(looked.expand)})]
    assert after.done
    place.upgrade()
    assert place.steps == [("migrated", {"revisions": []})]


def test_a_host_waits_for_its_control_plane(place: Place) -> None:
    upgrade(place.store.database, "0015")
    place.of(HOST_PARTS)
    with pytest.raises(Conflict) as refused:
        place.upgrade()
    assert refused.value.code == "schema_behind"
    assert place.steps == []
    place.of(CONTROL_PARTS)
    place.upgrade()
    place.of(HOST_PARTS)
    assert place.upgrade().done
    assert place.steps == []


def test_a_database_that_is_beyond_this_release_is_left_alone(place: Place) -> None:
    place.store.migrate()
    with place.store.database.write() as at:
        at.execute(text("UPDATE deployment SET least_revision = '9001'"))
    with pytest.raises(PromigenceError) as refused:
        place.upgrade()
    assert refused.value.code == "unknown_schema"


def test_one_upgrade_at_a_time(place: Place) -> None:
    other = os.open(place.directory, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Conflict) as refused:
            place.upgrade()
    finally:
        os.close(other)
    assert refused.value.code == "upgrade_runs"


def test_no_epoch_begins_where_nothing_went_back(place: Place) -> None:
    place.store.migrate()
    with pytest.raises(Conflict) as refused:
        restore.restored(place.directory)
    assert refused.value.code == "nothing_restored"
    assert place.now().epoch == FIRST_EPOCH


def test_an_epoch_begins_once_for_what_is_remembered(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "LOOKS_APART_S", 0.05)
    place.store.migrate()
    before = place.now()
    EpochMemory(place.directory, CONTROL).write(Seen(before.deployment_id, 1, 7))
    begun = restore.restored(place.directory)
    assert (begun.before, begun.deployment_id) == (1, before.deployment_id)
    assert begun.why == "beat 7 of epoch 1 is remembered here, the database is at beat 0 of epoch 1"
    assert place.now().epoch == begun.epoch > 1
    with pytest.raises(Conflict):
        restore.restored(place.directory)
    assert restore.restored(place.directory, copy=True).deployment_id != before.deployment_id
    with place.store.database.read() as at:
        noted = at.execute(text("SELECT action, status FROM audit")).all()
    assert [tuple(entry) for entry in noted] == [("deployment.restored", 200)] * 2


def test_no_epoch_begins_beside_a_process_whose_heart_beats(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is in the backup, and long gone, is no hindrance."""
    place.store.migrate()
    for name in ("old", "new"):
        process = ControlProcess(name, "api", name, 7, "1.0", known_revision())
        place.store.processes.begin(process)
    monkeypatch.setattr(restore, "LOOKS_APART_S", 0.3)
    monkeypatch.setattr(
        "workers.stack.restore.time.sleep", lambda _seconds: place.store.processes.beat("new")
    )
    with pytest.raises(Conflict, match="process 7 on new") as refused:
        restore.restored(place.directory, force=True)
    assert refused.value.code == "control_plane_runs"
    assert "on old" not in refused.value.message
