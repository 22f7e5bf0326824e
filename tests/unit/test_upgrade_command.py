"""What `promigence-server upgrade` says, and how it tells a part of this release from one of another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.errors import NotFound
from infra.stack.process import Process
from infra.store.migrate import known_revision
from workers.server import app
from workers.stack.upgrade import Outlook, PartRelease, check, upgrade, with_flower
from workers.upgrade import shown, words

API = PartRelease("api", 1, "1.0", current=True)
OLD_API = PartRelease("api", 1, "0.9", current=False)
FLOWER = PartRelease("flower", 2, None, current=False)


def outlook(*parts: PartRelease, expand: tuple[str, ...] = ()) -> Outlook:
    return Outlook("1.0", "0018", True, expand, ("c0001",), parts)


@pytest.mark.parametrize(
    ("api", "began", "current"), [(API, 20, True), (API, 5, False), (OLD_API, 20, False)]
)
def test_flower_is_of_this_release_if_it_was_started_after_an_api_that_is(
    api: PartRelease, began: int, *, current: bool
) -> None:
    running = {"api": Process(1, 10, "boot"), "flower": Process(2, began, "boot")}
    assert with_flower(FLOWER, [api, FLOWER], running).current is current
    assert with_flower(api, [api, FLOWER], running) == api


def test_what_waits_for_others_is_nothing_left_to_do_here() -> None:
    assert outlook(API).done
    assert not outlook(OLD_API).done
    assert not outlook(API, expand=("0018",)).done


def test_it_is_told_in_words() -> None:
    told = shown(outlook(OLD_API, FLOWER, expand=("0018",)))
    assert told.splitlines() == [
        "release 1.0, schema 0018",
        "migrations to run: 0018",
        "migrations that wait until nobody needs the old shape: c0001",
        "api (1) is of 0.9",
        "flower (2) is of an older release",
    ]
    assert shown(outlook(API)).endswith("api (1) is of this release\nnothing is left to do")


def test_each_step_is_a_line() -> None:
    assert words("draining", {"machines": {"7": 2}}) == "draining: machines 2 of process 7"
    assert words("migrated", {"revisions": []}) == "the schema is of this release already"
    assert words("migrated", {"revisions": ["0018"]}) == "migrated: revisions 0018"
    assert words("restarted", {"part": "api", "pid": 7}) == "restarted: part api, pid 7"
    assert words("worker_started", {}) == "worker started"


@pytest.mark.parametrize("look", [check, partial(upgrade, say=lambda *_: None)])
def test_where_no_stack_is_there_is_nothing_to_upgrade(
    look: Callable[[Path], Outlook], tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match="there is no stack in"):
        look(tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_a_migration_says_which_schema_it_is_now(tmp_path: Path) -> None:
    for _ in range(2):
        said = CliRunner().invoke(app, ["migrate", "--dir", str(tmp_path)])
        assert (said.exit_code, said.stdout) == (0, f"the schema is {known_revision()}\n")
