"""The fault matrix sees a product that calls a fault by another name: a real stack, told to lie about one kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.machines

ROOT = Path(__file__).parents[2]
WITHIN_S = 180
# Every process of the stack takes this in when it starts, before anything of the product.
LIE = """
from dataclasses import replace

from app.domain import failure
from app.errors import FailureKind

honest = failure.failure


def lie(*given, **told):
    named = honest(*given, **told)
    panicked = named.kind is FailureKind.GUEST_PANICKED
    return replace(named, kind=FailureKind.GUEST_HUNG) if panicked else named


failure.failure = lie
"""


def test_a_fault_that_is_called_by_another_name_is_misnamed_and_nothing_else_is(
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LIE)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    drilled = subprocess.run(
        [sys.executable, "-m", "drills.matrix", "--json", "--only", "kernel-panic,kills-itself"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert drilled.returncode == 1, drilled.stderr
    summary = json.loads(drilled.stdout.splitlines()[-1])
    counted = {what: summary[what] for what in ("cases", "misnamed", "uncaused", "harmed", "leaks")}
    assert counted == {"cases": 2, "misnamed": 1, "uncaused": 0, "harmed": 0, "leaks": 0}
    (name,) = summary["wrong"]
    assert name == "kernel-panic"
    assert "kind is guest_hung instead of guest_panicked" in summary["wrong"][name][0]
