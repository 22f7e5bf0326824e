"""The compose file as Docker Compose itself reads it, and the laws that each of its services keeps.

`make compose-smoke` brings it up on an engine; here nothing is started.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.settings import Settings
from workers.server import app

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = Path(sys.executable).with_name("docker-compose")
MOTO = ROOT / "deploy/compose/moto.env"
KVM = ROOT / "deploy/compose/kvm.yml"
OURS = {"admit", "api", "billing", "flower", "host", "migrate"}
LISTENS_OUTSIDE = {"api", "flower"}
# They end, and others wait for that.
ONCE = {"migrate", "admit", "bucket"}
# What a service may be given beside its networks, files and commands. A name that is not here is a decision to be made.
MAY_BE_GIVEN = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}
PINNED = re.compile(r"[a-z/-]+:\d+\.\d+(\.\d+)?[a-z0-9.-]*(@sha256:[0-9a-f]{64})?")

Service = dict[str, Any]


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    """All of them, those that wait for their profile too."""
    return _config("--env-file", str(MOTO))["services"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    """What `deploy/compose/secrets` makes, by name."""
    return {name: each["file"] for name, each in _config()["secrets"].items()}


def test_the_file_is_sound_as_it_is_and_with_each_of_its_variants() -> None:
    assert set(_config()["services"]) == {*OURS, "postgres", "redis"}
    with_kvm = _config("--file", str(ROOT / "docker-compose.yml"), "--file", str(KVM))
    (device,) = with_kvm["services"]["host"]["devices"]
    assert device["source"] == device["target"] == "/dev/kvm"
    with_moto = _config("--env-file", str(MOTO))["services"]
    assert set(with_moto) == {*OURS, "postgres", "redis", "moto", "bucket"}
    given = {with_moto[name]["environment"]["PROMIGENCE_BLOBS"] for name in ("api", "host")}
    assert given == {"s3://promigence/files"}


def test_every_service_says_whether_it_is_well(services: dict[str, Service]) -> None:
    for name, service in services.items():
        check = service["healthcheck"]
        if name in ONCE:
            assert check == {"disable": True}, name
            assert service["restart"] == "on-failure", name
        else:
            assert check["test"][0] in ("CMD", "CMD-SHELL"), name
            assert check["retries"] >= 2, name
            assert "timeout" in check, name
            assert service["restart"] == "unless-stopped", name


def test_every_service_has_its_limits(services: dict[str, Service]) -> None:
    for name, service in services.items():
        assert float(service["cpus"]) > 0, name
        assert int(service["mem_limit"]) > 0, name
        assert 0 < service["pids_limit"] <= 16384, name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name


def test_no_service_has_more_rights_than_it_uses(services: dict[str, Service]) -> None:
    for name, service in services.items():
        assert "privileged" not in service, name
        assert service["cap_drop"] == ["ALL"], name
        assert set(service.get("cap_add", ())) <= (MAY_BE_GIVEN if name == "host" else set()), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert not {"network_mode", "pid", "ipc", "devices", "userns_mode"} & service.keys(), name
        sources = [mount["source"] for mount in service.get("volumes", ())]
        assert not [source for source in sources if source.startswith("/")], name


def test_every_image_is_pinned(services: dict[str, Service]) -> None:
    for name, service in services.items():
        assert PINNED.fullmatch(service["image"]), (name, service["image"])
    base = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert base is not None
    assert PINNED.fullmatch(base[1])


def test_the_control_planes_image_is_no_roots() -> None:
    """Stages that are run by compose say their user; the host's worker is root, with the rights that are listed."""
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    by_name = {stage.split()[2]: stage for stage in stages[1:] if " AS " in stage.splitlines()[0]}
    assert "USER 10001:10001" in by_name["control"]
    assert "qemu" not in by_name["control"] + by_name["venv"] + by_name["base"]


def test_secrets_are_files_and_no_variable_holds_one(
    services: dict[str, Service], tmp_path: Path
) -> None:
    made = _made_secrets(tmp_path / "secrets")
    environment = {**os.environ, "PROMIGENCE_SECRETS": str(tmp_path / "secrets")}
    shown = json.dumps(_config("--env-file", str(MOTO), environment=environment))
    assert {name for name, secret in made.items() if secret in shown} == set()
    secret_settings = {f"PROMIGENCE_{name.upper()}" for name in _secret_names()}
    for name, service in services.items():
        assert not secret_settings & service.get("environment", {}).keys(), name


def test_each_part_is_given_no_secret_that_it_does_not_use(services: dict[str, Service]) -> None:
    given = {
        name: {each["source"] for each in s.get("secrets", ())} for name, s in services.items()
    }
    who = {
        secret: {name for name, held in given.items() if secret in held}
        for secret in set().union(*given.values())
    }
    assert who == {
        "postgres_password": {"postgres"},
        "redis_acl": {"redis"},
        # A host logs in as itself: its own are in a volume that `admit` fills.
        "promigence_database_url": {"migrate", "admit", "api", "billing"},
        "promigence_redis_url": {"admit", "api", "billing", "flower"},
        "promigence_redis_admin_url": {"admit"},
        "promigence_key_secret": {"api"},
        "promigence_flower_password": {"flower"},
        "promigence_metrics_token": {"admit", "api", "billing"},
    }
    assert services["host"]["environment"]["PROMIGENCE_SECRETS_DIR"] == "/access"
    held = {name for name, s in services.items() if "access" in _volumes(s)}
    assert held == {"admit", "host"}


def test_the_secrets_that_are_made_are_the_ones_that_are_read(
    secrets: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "secrets"
    made = _made_secrets(folder)
    assert set(made) == set(secrets)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert _made_secrets(folder) == made
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PROMIGENCE_{name.upper()}", raising=False)
    settings = Settings(secrets_dir=folder)
    assert settings.database.endswith(f":{made['postgres_password']}@postgres/promigence")
    assert settings.key_secret is not None
    assert len(settings.key_secret.get_secret_value()) == 64
    # Redis is told a hash.
    assert settings.broker_url.rpartition("@")[0].rpartition(":")[2] not in made["redis_acl"]


def test_a_lost_half_of_redis_password_is_made_anew_with_the_other(tmp_path: Path) -> None:
    before = _made_secrets(tmp_path)
    (tmp_path / "redis_acl").unlink()
    after = _made_secrets(tmp_path)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"redis_acl", "promigence_redis_url", "promigence_redis_admin_url"}


def test_each_part_runs_a_command_of_the_server(services: dict[str, Service]) -> None:
    known = {
        each.name or each.callback.__name__ for each in app.registered_commands if each.callback
    }
    for name in OURS:
        service = services[name]
        assert name == "admit" or service["command"][0] in known, name
        if name not in ONCE:
            assert service["healthcheck"]["test"][1] == "promigence-server", name
            assert service["healthcheck"]["test"][2] in known, name


def test_each_variable_is_a_setting(services: dict[str, Service]) -> None:
    given = {variable for name in OURS for variable in services[name]["environment"]}
    known = {f"PROMIGENCE_{name.upper()}" for name in Settings.model_fields}
    assert given - known == {"AWS_SHARED_CREDENTIALS_FILE", "HOST"}


def test_nothing_listens_beyond_this_machine(services: dict[str, Service]) -> None:
    published = {name: s["ports"] for name, s in services.items() if "ports" in s}
    assert set(published) == LISTENS_OUTSIDE
    assert {port["host_ip"] for ports in published.values() for port in ports} == {"127.0.0.1"}


def test_the_host_and_the_control_plane_meet_only_at_their_stores(
    services: dict[str, Service],
) -> None:
    """What a machine's way out leads to is never the API; and nothing of the control plane can reach the host."""
    networks = _config()["networks"]
    assert networks["control"]["internal"] is True
    beside_host = {name for name, s in services.items() if "machines" in s["networks"]} - {"host"}
    assert beside_host == {"postgres", "redis", "moto"}
    assert set(services["host"]["networks"]) == {"machines"}
    assert {name for name, s in services.items() if "public" in s["networks"]} == LISTENS_OUTSIDE


def test_nothing_of_this_checkout_is_sent_to_the_engine_that_no_image_needs() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    wanted = {word.split("/")[0] for words in copied for word in words.split()}
    assert wanted == sent


def _volumes(service: Service) -> set[str]:
    return {mount["source"] for mount in service.get("volumes", ())}


def _secret_names() -> set[str]:
    return {name for name, field in Settings.model_fields.items() if "SecretStr" in str(field)}


def _made_secrets(folder: Path) -> dict[str, str]:
    subprocess.run(
        [str(ROOT / "deploy/compose/secrets"), str(folder)],
        check=True,
        timeout=30,
        capture_output=True,
    )
    return {path.name: path.read_text().strip() for path in folder.iterdir()}


def _config(*words: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    done = subprocess.run(
        [str(COMPOSE), *words, "--project-directory", str(ROOT), "config", "--format", "json"],
        env=environment or {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
