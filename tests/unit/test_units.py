"""What an instance runs: units that systemd understands, as shut off as they can be, and scripts without mistakes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
SCRIPTS = sorted((ROOT / "deploy" / "image").iterdir())
# What makes a mount namespace (systemd.exec(5)): a bundle mounted in one is seen by nobody else, and kept by machines.
NAMESPACES = {
    *("ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts"),
    *("ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups"),
    *("ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths"),
    *("BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "MountFlags", "MountAPIVFS"),
    *("RootDirectory", "RootImage", "DynamicUser", "ProtectProc", "ProcSubset", "LoadCredential"),
}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_every_unit(tmp_path: Path) -> None:
    for unit in UNITS.iterdir():
        # The product is not installed where this runs.
        text = re.sub(r"/opt/promigence/current/\S+", "/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text)
    said = verified(tmp_path)
    assert said == "", said
    worker = tmp_path / "promigence-worker.service"
    worker.write_text(worker.read_text().replace("KillMode=process", "KilMode=process"))
    assert "KilMode" in verified(tmp_path)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="there is no shellcheck here")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    done = run("shellcheck", str(script))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_one(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert run("bash", "-n", str(script)).returncode == 0


def test_a_restart_of_the_worker_leaves_its_machines_alone() -> None:
    worker = settings("promigence-worker.service")
    assert worker["KillMode"] == ["process"]
    assert worker["OOMPolicy"] == ["continue"]
    assert worker["Restart"] == ["always"]
    assert worker["RuntimeDirectoryPreserve"] == ["yes"]


def test_what_the_worker_mounts_is_mounted_for_all() -> None:
    assert not NAMESPACES & set(settings("promigence-worker.service"))


def test_the_worker_is_root_with_what_it_needs() -> None:
    worker = settings("promigence-worker.service")
    assert worker["NoNewPrivileges"] == ["yes"]
    (capabilities,) = worker["CapabilityBoundingSet"]
    assert len(capabilities.split()) == 11
    assert not {"CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_NET_ADMIN", "CAP_SYS_BOOT"} & set(
        capabilities.split()
    )


@pytest.mark.parametrize("part", ["api", "billing", "flower"])
def test_a_part_is_a_user_of_its_own_and_writes_nothing_but_its_own(part: str) -> None:
    unit = settings(f"promigence-{part}.service")
    assert unit["User"] == [f"promigence-{part}"]
    assert unit["CapabilityBoundingSet"] == [""]
    assert unit["ProtectSystem"] == ["strict"]
    for yes in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices"):
        assert unit[yes] == ["yes"], yes
    users = (ROOT / "deploy/etc/sysusers.d/promigence.conf").read_text()
    assert re.search(rf"^u promigence-{part} ", users, re.MULTILINE)


def test_a_part_is_handed_what_it_needs_and_no_more() -> None:
    handed = {
        part: {
            each.split(":")[0].removeprefix("promigence_")
            for each in settings(f"promigence-{part}.service")["LoadCredential"]
        }
        for part in ("api", "billing", "flower")
    }
    assert handed["flower"] == {"flower_redis_url", "flower_password"}
    assert handed["billing"] == {"database_url", "redis_url", "metrics_token"}
    assert "flower_password" not in handed["api"]


def test_every_unit_is_started_from_what_the_image_has() -> None:
    begin = (ROOT / "deploy/image/begin").read_text()
    started = set(re.findall(r"parts=\(([^)]*)\)", begin))
    parts = {part for words in started for part in words.split() if part.isalpha()}
    assert {f"promigence-{part}.service" for part in parts} <= {
        unit.name for unit in UNITS.iterdir()
    }


def test_what_every_unit_logs_is_sent_to_a_group_that_there_is() -> None:
    done = run("bash", str(ROOT / "deploy/image/agent-config"), "trial")
    sent = json.loads(done.stdout)["logs"]["logs_collected"]["files"]["collect_list"]
    logged = {
        file.removeprefix("append:")
        for unit in UNITS.glob("*.service")
        for file in settings(unit.name)["StandardError"]
    }
    assert {each["file_path"] for each in sent} == logged
    groups = {each["log_group_name"].removeprefix("/promigence/trial/") for each in sent}
    made = (ROOT / "terraform/modules/monitoring/main.tf").read_text()
    (parts,) = re.findall(r"^  parts\s*= toset\(\[(.*?)\]\)", made, re.MULTILINE | re.DOTALL)
    assert groups == set(re.findall(r'"(\w+)"', parts))


def settings(unit: str) -> dict[str, list[str]]:
    """Every `Name=value` of a unit."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", (UNITS / unit).read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def verified(folder: Path) -> str:
    """What systemd says of the units in a folder."""
    units = sorted(str(path) for path in folder.glob("promigence-*"))
    return run("systemd-analyze", "verify", "--man=no", *units).stderr


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
