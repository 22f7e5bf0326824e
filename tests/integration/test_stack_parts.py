"""A deployment whose control plane and hosts are stacks of their own, on one database and one queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from infra.settings import load
from tests.integration.stacks import DEFINITION, Stack, until
from tests.integration.test_queue import running as redis_running


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Stack]]:
    """A control plane and a host, neither up; what is in both environments tells them where rows and bells are."""
    names = ("control", "host")
    stacks = {name: Stack(tmp_path / name) for name in names}
    with TemporaryDirectory(dir="/tmp", prefix="pmg") as folder:
        socket = Path(folder) / "redis.sock"
        monkeypatch.setenv("PROMIGENCE_DATABASE_URL", f"sqlite:///{tmp_path}/rows.db")
        monkeypatch.setenv("PROMIGENCE_REDIS_URL", f"redis+socket://{socket}")
        monkeypatch.setenv("PROMIGENCE_MACHINES", "fake")
        with redis_running(socket):
            try:
                yield stacks
            finally:
                for name in reversed(names):
                    stacks[name].down()


def test_a_host_apart_does_the_work_of_a_control_plane(
    apart: dict[str, Stack], monkeypatch: pytest.MonkeyPatch
) -> None:
    control, host = apart["control"], apart["host"]
    _up(control, "api,billing,flower")
    monkeypatch.setenv("PROMIGENCE_HOST_ID", "i-0123456789abcdef0")
    monkeypatch.setenv("PROMIGENCE_WORKER_METRICS_PORT", "19464")
    said = _up(host, "worker")

    assert "i-0123456789abcdef0" in said
    seen = {name: stack.status() for name, stack in apart.items()}
    assert set(seen["control"]) == {"supervisor", "api", "billing", "flower"}
    assert set(seen["host"]) == {"supervisor", "worker"}
    assert all(part["ready"] for parts in seen.values() for part in parts.values())
    _check_host_knows_no_secret_of_the_control_plane(host)
    with control.client() as client:
        client.snapshots.build(DEFINITION)
        run = client.runs.start(
            "task-suite", count=4, spend_cap=1.0, exec={"sh": "sim: print x exit 0"}
        )
        assert client.runs.wait(run["run_id"], timeout=30)["totals"]["passed"] == 4
        run = client.runs.start(
            "task-suite", count=1, spend_cap=1.0, exec={"sh": "sim: 60s exit 0"}
        )
        until(
            lambda: client.runs.get(run["run_id"])["progress"]["running"] == 1, "a fork that runs"
        )
        host.down()
        (fork,) = client.runs.wait(run["run_id"], timeout=30)["forks"]
    assert fork["outcome"] != "passed"
    assert host.leavings() == set()
    assert not host.processes()
    assert control.processes()


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
