"""Whatever a step leaves behind is found: planted files, processes, sockets, keys and rows."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from drills import leavings
from drills.leavings import left, settled
from drills.rig import Rig
from infra.stack.records import Places

HOST: dict[str, Any] = {
    "host_id": "vm",
    "slots": 48,
    "free_slots": 48,
    "memory_mib": 1000,
    "free_memory_mib": 1000,
    "disk_gib": 10,
    "free_disk_gib": 10,
}


@dataclass(frozen=True, slots=True)
class Rows:
    """A database with one host, and what is planted in it, by a word of the statement that finds it."""

    host: dict[str, Any] = field(default_factory=HOST.copy)
    planted: dict[str, dict[str, Any]] = field(default_factory=dict)

    def rows(self, statement: str, *_values: object) -> list[dict[str, Any]]:
        if "FROM host" in statement:
            return [self.host]
        return [row for word, row in self.planted.items() if word in statement]


class Keys:
    """A Redis with these keys: (seconds to live, length)."""

    def __init__(self, **keys: tuple[int, int]) -> None:
        self.keys = keys

    def __call__(self, **_where: object) -> Keys:
        return self

    def scan_iter(self, count: int) -> Iterator[bytes]:
        return iter([name.encode() for name in self.keys])

    def ttl(self, name: str) -> int:
        return self.keys[name][0]

    def llen(self, name: str) -> int:
        return self.keys.get(name, (0, 0))[1]

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A stack of which only the directories are there."""
    for folder in ("machines", "bundles/staged", "run"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(redis, "Redis", Keys(**{"_kombu.binding_permanent.x": (-1, 0)}))
    return of(tmp_path, Rows())


def of(directory: Path, rows: Rows) -> Rig:
    places = Places(directory, directory / "run")
    made = SimpleNamespace(places=places, machines=directory / "machines", postgres=rows)
    return cast(Rig, made)


def found(rig: Rig, *names: str) -> list[str]:
    return left(rig, frozenset(names), frozenset())


def test_where_nothing_is_left_nothing_is_found(rig: Rig) -> None:
    assert found(rig) == []


def test_what_was_there_before_is_not_found_again(rig: Rig) -> None:
    (rig.machines / "att_1").mkdir()
    assert left(rig, frozenset(), frozenset(found(rig))) == []


def test_a_machine_that_lives_on_is_found(rig: Rig) -> None:
    home = rig.machines / "att_1"
    home.mkdir()
    with subprocess.Popen(["sleep", "60"], cwd=home) as process:
        lines = found(rig)
        process.kill()
    assert f"process {process.pid} lives in att_1" in lines
    assert "the directory of machine att_1" in lines


def test_sockets_and_bundles_are_found(rig: Rig) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(rig.places.directory / "left.sock"))
        (rig.places.directory / "bundles" / "staged" / "build_1").mkdir()
        assert found(rig) == ["staged bundle build_1", "socket left.sock"]


def test_a_control_group_of_a_machine_is_found(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "groups" / "att_1").mkdir(parents=True)
    monkeypatch.setattr(leavings, "_GROUPS", tmp_path / "groups")
    assert found(rig, "att_1", "att_2") == ["control group att_1"]


def test_keys_without_an_end_and_bells_that_wait_are_found(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"host.vm": (-1, 3), "left": (-1, 0), "ends": (60, 0), "_kombu.binding.x": (-1, 0)}
    monkeypatch.setattr(redis, "Redis", Keys(**keys))
    assert found(rig) == ["Redis key left of no end", "3 bells in queue host.vm"]


@pytest.mark.parametrize(
    ("word", "row", "line"),
    [
        ("FROM run WHERE state", {"id": "run_1"}, "run run_1 is not final"),
        ("FROM fork", {"id": "fork_1"}, "fork fork_1 is not final"),
        ("FROM attempt", {"id": "att_1"}, "attempt att_1 is not final"),
        ("FROM exec", {"id": "exec_1"}, "exec exec_1 is not final"),
        ("live_forks", {"project_id": "p", "live_forks": 2}, "project p counts 2 live forks"),
        (
            "project_month",
            {"project_id": "p", "committed": 5, "charged": 3},
            "project p has 5 committed, its runs 3",
        ),
    ],
)
def test_rows_that_are_not_final_are_found(
    rig: Rig, word: str, row: dict[str, Any], line: str
) -> None:
    planted = of(rig.places.directory, Rows(planted={word: row}))
    assert found(planted) == [line]


@pytest.mark.parametrize("whole", ["slots", "memory_mib", "disk_gib"])
def test_room_that_was_not_given_back_is_found(rig: Rig, whole: str) -> None:
    kept = of(rig.places.directory, Rows(host={**HOST, f"free_{whole}": 1}))
    assert found(kept) == [f"host vm has 1 of {HOST[whole]} {whole} free"]


def test_it_is_looked_until_nothing_is_left_or_time_is_up() -> None:
    looks = iter([["a", "b"], ["b"], []])
    assert settled(lambda: next(looks), within_s=60) == []
    assert settled(lambda: ["a"], within_s=0) == ["a"]
