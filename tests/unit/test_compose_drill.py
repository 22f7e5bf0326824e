"""The judges of `make compose-smoke`: each sees what it is there to see."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drills.compose import exposed, outlive
from drills.compose.engine import Deployment, left

LOST = {"kind": "host_lost", "task_may_have_caused": False, "evidence": {}}


@dataclass(frozen=True, slots=True)
class Told(Deployment):
    """A deployment of which Docker and Compose say what the test wants: by the first word that names it."""

    says: dict[str, str] = field(default_factory=dict)

    def compose(self, *words: str, within_s: float = 0) -> str:
        del within_s
        return self._said(words)

    def docker(self, *words: str) -> str:
        return self._said(words)

    def _said(self, words: tuple[str, ...]) -> str:
        line = " ".join(words)
        return next((said for named, said in self.says.items() if named in line), "")


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "promigence_key_secret").write_text("k" * 64 + "\n")
    (tmp_path / "redis_acl").write_text("a hash\n")
    return tmp_path


def test_nothing_said_is_nothing_shown(secrets: Path) -> None:
    assert exposed.secrets_shown(Told({}, secrets, {"inspect": "a hash"})) == []


@pytest.mark.parametrize("where", ["inspect", "logs", "top", "history"])
def test_a_secret_is_seen_wherever_docker_tells_it(where: str, secrets: Path) -> None:
    (first, *_) = exposed.secrets_shown(Told({}, secrets, {where: f"x {'k' * 64} y"}))
    assert first.startswith("the secret promigence_key_secret is in")


@pytest.mark.parametrize(
    ("open_to_host", "wrong"),
    [
        (("postgres", "redis"), []),
        (("postgres", "redis", "10.0.0.2 8000"), ["the host reaches 10.0.0.2:8000"]),
        (("redis",), ["the host does not reach postgres:5432, so the knocking proves nothing"]),
    ],
)
def test_what_the_host_reaches(open_to_host: tuple[str, ...], wrong: list[str]) -> None:
    networks = {"control": {"IPAddress": "10.0.0.2"}}
    inspected = json.dumps([{"NetworkSettings": {"Networks": networks}}])
    answers = {f"{_KNOCK_END} {who}": "answered\n" for who in open_to_host}
    here = Told({}, Path(), {**answers, "ps --all": "c1", "inspect": inspected, "exec": "silent\n"})
    assert exposed.reachable(here) == wrong


def test_what_is_left_is_told_by_kind() -> None:
    here = Told({}, Path(), {"ps --all": "smoke-api-1", "volume ls": "smoke_host\nsmoke_api"})
    assert left(here, ["no such container"]) == [
        "container smoke-api-1",
        "volume smoke_host",
        "volume smoke_api",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"outcome": "env_failed"}, "fork 0 is env_failed"),
        ({"stdout_tail": "collec"}, "said 'collec'"),
        ({"attempts": 2}, "took 2 machines"),
    ],
)
def test_a_result_that_was_not_collected_is_told(change: dict[str, Any], said: str | None) -> None:
    fork = {"index": 0, "outcome": "passed", "stdout_tail": f"{outlive.WORD}\n", "attempts": 1}
    report: Any = {"forks": [{**fork, **change}]}
    wrong = outlive.wrong_results(report, "killed worker")
    assert (wrong == []) if said is None else (said in wrong[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"outcome": "failed", "failure": None}, "fork 0 is failed by None"),
        ({"failure": {"kind": "guest_hung", "task_may_have_caused": False}}, "guest_hung"),
        ({"failure": {**LOST, "task_may_have_caused": True}}, "pays for it"),
        (
            {
                "failure": {
                    **LOST,
                    "task_may_have_caused": True,
                    "evidence": {"killed_from_outside": True},
                }
            },
            None,
        ),
        ({"reward": 0.0}, "pays for it: 0.0"),
    ],
)
def test_a_lost_fork_is_the_environments(change: dict[str, Any], said: str | None) -> None:
    fork = {"index": 0, "outcome": "env_failed", "failure": LOST, "reward": None}
    report: Any = {"forks": [{**fork, **change}]}
    wrong = outlive.wrong_losses(report, "host_lost", "stopped container")
    assert (wrong == []) if said is None else (said in wrong[0])


# As the knocking's command ends before address and port.
_KNOCK_END = "close()'"
