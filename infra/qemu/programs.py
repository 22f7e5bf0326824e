"""The QEMU programs of a host: which of those named work, and which build each is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from app.errors import Unavailable

PROGRAM = "qemu-system-x86_64"
_ANSWERS_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Build:
    """A program that works. `build` is its exact one, the distribution's revision included.

    `file` tells its file from one that was put in its place: device, inode, size, time of change.
    """

    program: str
    build: str
    machine_type: str
    file: tuple[int, ...]


def look_at(named: Iterable[str], uid: int | None) -> tuple[tuple[Build, ...], tuple[str, ...]]:
    """The builds behind these names or paths, in their order; and in words what is left out, and why.

    They are asked as the user that machines run as, for a program that only its owner reaches starts none. Of two
    programs of one build the first is taken: a bundle could not tell them apart. Raises Unavailable if none works.
    """
    found: list[Build] = []
    left_out: list[str] = []
    refusals: list[Unavailable] = []
    for name in named:
        try:
            build = _build_of(name, uid)
        except Unavailable as refused:
            refusals.append(refused)
            left_out.append(f"a QEMU that was named: {refused.message}")
            continue
        same = next((each for each in found if each.build == build.build), None)
        if same is None:
            found.append(build)
        else:
            left_out.append(f"{build.program} is the same build as {same.program}: not used")
    if not found:
        reasons = "; ".join(refused.message for refused in refusals) or "no QEMU is named"
        raise Unavailable(refusals[0].code if refusals else "no_hypervisor", reasons)
    return tuple(found), tuple(left_out)


def file_of(program: str) -> tuple[int, ...]:
    """What tells a program's file from another under its name; empty if there is none."""
    try:
        seen = Path(program).stat()
    except OSError:
        return ()
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


def best_machine_type(listing: str) -> str | None:
    """The newest versioned q35 in the text of `-machine help`; a name without version changes with each release."""
    versions = re.findall(r"^pc-q35-(\d+)\.(\d+)\b", listing, flags=re.MULTILINE)
    if not versions:
        return None
    major, minor = max((int(major), int(minor)) for major, minor in versions)
    return f"pc-q35-{major}.{minor}"


def _build_of(name: str, uid: int | None) -> Build:
    program = shutil.which(name)
    if program is None:
        raise Unavailable(
            "no_hypervisor", f"{name} is not installed: `make setup`, or another `qemu`"
        )
    file = file_of(program)
    version, _, _ = _ask(uid, program, "--version").strip().partition("\n")
    build = version.removeprefix("QEMU emulator version ")
    if build == version:
        raise Unavailable("no_hypervisor", f"{program} is no QEMU: it says {version[:80]!r}")
    machine_type = best_machine_type(_ask(uid, program, "-machine", "help"))
    if machine_type is None:
        raise Unavailable("no_machine_type", f"{program} has no versioned q35 machine")
    return Build(program, build, machine_type, file)


def _ask(uid: int | None, *argv: str) -> str:
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERS_WITHIN_S,
            check=True,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else (),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable("no_hypervisor", f"{argv[0]} does not work: {error}") from error
    return done.stdout
