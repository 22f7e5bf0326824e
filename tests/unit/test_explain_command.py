"""`promigence-server explain` as an operator types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.domain.placement import choose
from app.errors import NotFound
from infra import wiring
from infra.settings import load
from infra.store import Stores, create_store
from tests import builders as a
from workers.server import app


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Stores]:
    """The rows of a stack in `tmp_path` of which nothing runs, with two hosts."""
    settings = load(tmp_path)
    wiring.migrate(settings)
    made = create_store(settings.database)
    made.hosts.register(a.fingerprint(), 1)
    made.hosts.register(a.fingerprint("host1", restore_keys=()), 4)
    yield made
    made.close()


def run(stack: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["explain", *words, "--dir", str(stack)])


def start(store: Stores, count: int) -> list[str]:
    """Forks of a new run, placed as far as there is room."""
    made, forks = a.step(count)
    store.runs.start(made, forks, None)
    store.hosts.assign(choose(store.hosts.waiting(100), store.hosts.list()))
    return [fork.fork_id for fork in forks]


def test_the_place_and_the_wait_are_told_in_words(tmp_path: Path, store: Stores) -> None:
    placed, waiting = start(store, 2)
    shown = run(tmp_path, placed).stdout
    assert f"it has its place on {a.HOST}" in shown
    assert f"placed on {a.HOST}: " in shown
    assert f"    not host1: cannot restore {a.KEY}" in shown
    shown = run(tmp_path, waiting).stdout
    assert "1 of 2 hosts could take it, and none has room now" in shown
    assert "0 before it; its project has no limit" in shown
    assert f"    {a.HOST}: no free slot\n" in shown
    assert f"    host1: cannot restore {a.KEY} (nor if it were empty)" in shown


def test_programs_read_the_same(tmp_path: Path, store: Stores) -> None:
    (placed,) = start(store, 1)
    done = run(tmp_path, placed, "--json")
    assert done.exit_code == 0
    page = json.loads(done.stdout)
    assert (page["fork_id"], page["host"]) == (placed, a.HOST)
    assert page["needs"]["restore_key"] == str(a.KEY)


def test_a_fork_that_never_was_is_named(tmp_path: Path, store: Stores) -> None:
    done = run(tmp_path, "fork_9")
    assert isinstance(done.exception, NotFound)
    assert "fork_9" in done.exception.message
