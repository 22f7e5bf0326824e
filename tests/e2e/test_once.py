"""A short run of the drill of at-most-once: real machines, a real stack, and its worker killed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.e2e.kept import PRODUCTS

pytestmark = pytest.mark.machines


def test_no_command_runs_twice_and_no_result_is_lost_though_the_worker_is_killed() -> None:
    done = subprocess.run(
        (sys.executable, "-m", "drills.once", "--commands", "8", "--kills", "2", "--json"),
        cwd=PRODUCTS.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["twice"], told["lost"], told["wrong"], told["leaks"]) == (0, 0, 0, 0)
    assert told["commands"] == 8
    assert told["kills"] >= 1
