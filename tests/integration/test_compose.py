"""The compose file as Docker Compose itself reads it; its images need a registry, so none is started here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.settings import Settings
from workers.server import app

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = Path(sys.executable).with_name("docker-compose")
SECRETS = {
    "POSTGRES_PASSWORD": "p",
    "PROMIGENCE_KEY_SECRET": "k",
    "PROMIGENCE_FLOWER_PASSWORD": "f",
}
OURS = {"api", "billing", "flower", "host"}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    done = _config(SECRETS)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def test_the_parts_of_the_server_and_what_they_stand_on(services: dict[str, Any]) -> None:
    assert set(services) == {*OURS, "postgres", "redis"}


@pytest.mark.parametrize("missing", sorted(SECRETS))
def test_without_a_secret_nothing_starts(missing: str) -> None:
    done = _config({name: value for name, value in SECRETS.items() if name != missing})
    assert done.returncode != 0
    assert missing in done.stderr


def test_each_part_runs_a_command_of_the_server(services: dict[str, Any]) -> None:
    known = {
        each.name or each.callback.__name__ for each in app.registered_commands if each.callback
    }
    assert {services[name]["command"][0] for name in OURS} <= known


def test_each_variable_is_a_setting(services: dict[str, Any]) -> None:
    given = {variable for name in OURS for variable in services[name]["environment"]}
    known = {f"PROMIGENCE_{name.upper()}" for name in Settings.model_fields}
    assert given - known == set()


def test_nothing_listens_beyond_this_machine(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def _config(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMPOSE), "--project-directory", str(ROOT), "config", "--format", "json"],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
