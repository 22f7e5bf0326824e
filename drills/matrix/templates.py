"""The snapshots that cases fork: their definitions, and the small programs in them that a shell cannot stand in for."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from drills.matrix.case import PLAIN, Template
from drills.rig import Rig
from promigence.types import Definition

BUILD_WITHIN_S = 240.0
_COMPILE = ("musl-gcc", "-static", "-s", "-Os", "-Wall", "-Werror")
_COMPILE_S = 60.0
_SOURCES = Path(__file__).parent


def build(rig: Rig, templates: Iterable[Template]) -> None:
    """Build them side by side. Raises PromigenceError, subprocess.SubprocessError."""
    wanted = dict.fromkeys(templates)
    if all(each.doomed for each in wanted):
        wanted[PLAIN] = None  # for the siblings
    with tempfile.TemporaryDirectory(prefix="promigence-matrix-") as programs:
        builds = [
            rig.client.snapshots.build(_definition(each, Path(programs)), wait=False)
            for each in wanted
        ]
    for build_id in builds:
        rig.client.snapshots.wait(build_id, BUILD_WITHIN_S)


def _definition(template: Template, programs: Path) -> Definition:
    return {
        "name": template.name,
        "image": "busybox",
        "shape": {
            "vcpus": 1,
            "memory_mib": template.memory_mib,
            "disk_gib": template.disk_gib,
        },
        "files": {str(_compiled(name, programs)): f"/bin/{name}" for name in template.programs},
        "setup": list(template.setup),
        "warm": list(template.warm),
        "on_fork": ['eval "$HOOK"'],
        "test": {"sh": 'eval "$TEST"', "timeout_seconds": template.test_timeout_s, "repeat": 1},
        "spend_cap": 1.0,
    }


def _compiled(name: str, programs: Path) -> Path:
    """A program for any guest of this host's architecture."""
    target = programs / name
    if not target.exists():
        source = str(_SOURCES / f"{name}.c")
        subprocess.run((*_COMPILE, "-o", str(target), source), check=True, timeout=_COMPILE_S)
    return target
