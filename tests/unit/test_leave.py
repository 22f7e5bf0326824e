"""A host whose group ends it: its worker drains and stays down, and only then the instance ends."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

LEAVE = Path(__file__).resolve().parents[2] / "deploy" / "image" / "leave"
# Each stand-in writes down how it was called.
CURL = """#!/bin/bash
case $* in
  *api/token*) echo a-token ;;
  *target-lifecycle-state*)
    [[ $* == *"aws-ec2-metadata-token: a-token"* ]] || exit 22
    state=$(head -n 1 "$HERE/states")
    sed -i 1d "$HERE/states"
    [ "$state" = 404 ] && exit 22
    echo "$state" ;;
esac
"""
TELLS = """#!/bin/bash
echo "${0##*/} $*" >> "$HERE/said"
exit ${DRAINS:-0}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name, text in (
        ("curl", CURL),
        ("systemctl", TELLS.replace("${DRAINS:-0}", "0")),
        ("promigence-admin", TELLS),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("drains", [0, 1])
def test_it_waits_to_be_told_and_ends_when_nothing_is_left(here: Path, drains: int) -> None:
    """Neither a service that does not answer nor one that says `InService` is a reason to go; a host without a worker
    has nothing to wait for.
    """
    (here / "states").write_text("404\nInService\nTerminated\n")
    done = leave(here, drains)
    assert done.returncode == 0, done.stderr
    assert (here / "said").read_text().splitlines() == [
        "systemctl daemon-reload",
        "promigence-admin host drain --wait",
        "systemctl poweroff",
    ]
    drop = here / "units" / "promigence-worker.service.d" / "leave.conf"
    assert drop.read_text() == "[Service]\nRestart=no\n"


def leave(here: Path, drains: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(LEAVE)],
        env={
            "PATH": f"{here}:{os.defpath}",
            "HERE": str(here),
            "DRAINS": str(drains),
            "LOOK_S": "0",
            "RUNTIME_UNITS": str(here / "units"),
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
