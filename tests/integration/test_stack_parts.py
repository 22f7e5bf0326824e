"""A deployment whose control plane and hosts are stacks of their own, on one database and one queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from infra.access.postgres import PostgresLogins
from infra.settings import load
from tests.contract import postgres
from tests.integration.guarded_redis import GuardedRedis, guarded
from tests.integration.stacks import DEFINITION, Stack, until

HOSTS = ("i-0123456789abcdef0", "i-0123456789abcdef1")


@dataclass(frozen=True, slots=True)
class Apart:
    """A control plane and hosts, none of them up. Each has a user of its own at a Redis that is reached by TLS, and a
    login of its own at a PostgreSQL.
    """

    control: Stack
    hosts: tuple[Stack, ...]
    redis: GuardedRedis
    database_url: str
    monkeypatch: pytest.MonkeyPatch

    def up_control(self) -> None:
        self._set(DATABASE_URL=self.database_url)
        self._set(REDIS_URL=self.redis.control(), FLOWER_REDIS_URL=self.redis.flower())
        _up(self.control, "api,billing,flower")

    def up_host(self, number: int) -> str:
        with closing(self.redis.logins()) as logins:
            self._set(HOST_ID=HOSTS[number], REDIS_URL=logins.create(HOSTS[number]))
        self._set(DATABASE_URL=PostgresLogins(self.database_url).create(HOSTS[number]))
        self.monkeypatch.delenv("PROMIGENCE_FLOWER_REDIS_URL", raising=False)
        self._set(WORKER_METRICS_PORT=str(19464 + number))
        return _up(self.hosts[number], "worker")

    def _set(self, **values: str) -> None:
        for name, value in values.items():
            self.monkeypatch.setenv(f"PROMIGENCE_{name}", value)


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Apart]:
    monkeypatch.setenv("PROMIGENCE_MACHINES", "fake")
    with guarded(tmp_path) as server, postgres.server() as database_url:
        stacks = [Stack(tmp_path / name) for name in ("control", *HOSTS)]
        try:
            yield Apart(stacks[0], tuple(stacks[1:]), server, database_url, monkeypatch)
        finally:
            for stack in reversed(stacks):
                stack.down()


def test_hosts_apart_do_the_work_of_a_control_plane(apart: Apart) -> None:
    control, host = apart.control, apart.hosts[0]
    apart.up_control()
    said = [apart.up_host(number) for number in range(len(HOSTS))]

    assert all(name in words for name, words in zip(HOSTS, said, strict=True))
    assert set(control.status()) == {"supervisor", "api", "billing", "flower"}
    assert set(host.status()) == {"supervisor", "worker"}
    for stack in (control, *apart.hosts):
        assert all(part["ready"] for part in stack.status().values())
    _check_host_knows_no_secret_of_the_control_plane(host)
    with control.client() as client:
        client.snapshots.build(DEFINITION)
        run = client.runs.start(
            "task-suite", count=8, spend_cap=1.0, exec={"sh": "sim: print x exit 0"}
        )
        assert client.runs.wait(run["run_id"], timeout=30)["totals"]["passed"] == 8
        run = client.runs.start(
            "task-suite", count=1, spend_cap=1.0, exec={"sh": "sim: 60s exit 0"}
        )
        until(
            lambda: client.runs.get(run["run_id"])["progress"]["running"] == 1, "a fork that runs"
        )
        _check_flower_hears_and_asks_everybody(apart)
        for stack in apart.hosts:
            stack.down()
        (fork,) = client.runs.wait(run["run_id"], timeout=30)["forks"]
    assert fork["outcome"] != "passed"
    assert host.leavings() == set()
    assert not host.processes()
    assert control.processes()
    assert apart.redis.refusals() == []
    for stack in apart.hosts:
        assert "not_this_login" not in (stack.directory / "logs" / "worker.log").read_text()


def test_parts_that_could_not_meet_the_others_are_not_started(
    own_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMIGENCE_DATABASE_URL", f"sqlite:///{own_stack.directory}/rows.db")
    refused = own_stack.server("up", "--machines", "fake", "--parts", "worker")
    unknown = own_stack.server("up", "--machines", "fake", "--parts", "api,woker")

    assert (refused.returncode, unknown.returncode) == (1, 1)
    assert "PROMIGENCE_REDIS_URL" in refused.stderr
    assert "bad_settings: parts.1" in unknown.stderr
    assert not own_stack.processes()


def _up(stack: Stack, parts: str) -> str:
    done = stack.server("up", "--parts", parts)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _check_host_knows_no_secret_of_the_control_plane(host: Stack) -> None:
    assert not (host.directory / "env").exists()
    assert not (host.directory / "key.secret").exists()
    settings = load(host.directory)
    assert settings.key_secret is None
    (job,) = json.loads((host.directory / "prometheus.yml").read_text())["scrape_configs"]
    assert [each["targets"] for each in job["static_configs"]] == [["127.0.0.1:19464"]]


def _check_flower_hears_and_asks_everybody(apart: Apart) -> None:
    """By their events, and by what they answer: two hosts, and who places."""
    url = apart.control.environment()["FLOWER_URL"]
    with httpx2.Client(base_url=url, timeout=20, trust_env=False) as flower:

        def heard() -> set[str]:
            return {_whose(name) for name in flower.get("/api/workers?status=1").json()}

        def asked() -> set[str]:
            told = flower.get("/api/workers?refresh=1").json()
            return {_whose(name) for name, each in told.items() if each.get("stats")}

        everybody = {*(f"worker.{host_id}" for host_id in HOSTS), "control"}
        until(lambda: everybody <= heard(), "Flower hears everybody")
        until(lambda: everybody <= asked(), "everybody answers Flower")


def _whose(worker: str) -> str:
    """`worker.<host id>` of a host's, `control` of the control plane's."""
    queue = worker.partition("@")[0]
    return queue.partition(":")[0] if queue.startswith("worker.") else queue.partition(".")[0]
