"""What this host can do, as data: accelerator, restore key, room, and in words what it lacks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from app.domain.machine import Accelerator, Fingerprint, RestoreKey
from app.errors import Unavailable
from app.ports import Clock
from infra.qemu import limits
from infra.qemu.argv import Hypervisor
from infra.qemu.launch import Means
from infra.qemu.probe import Trial, kvm_verdict

PROGRAM = "qemu-system-x86_64"

# A range that no distribution hands out. A machine's user is this plus its keeper's process id (4,194,304 at most).
FIRST_UID = 2_000_000_000
_UIDS = 4_194_304

# The richest named model that TCG knows in full; it has all that x86-64-v2 needs. No AVX: emulated, it slows down what
# it is meant to speed up.
TCG_CPU = "Westmere-v1"

_MEMORY_FOR_HOST_MIB = 1024
# Of the rest, what the hypervisors take for themselves: 24 to 55 MiB beside a guest of 256 to 512.
_EIGHTHS_FOR_GUESTS = 7
_DISK_FOR_HOST_GIB = 4
_ANSWERS_WITHIN_S = 20.0


def survey(
    host_id: str, root: Path, keeper: Path, kernel: Path, initramfs: Path, clock: Clock
) -> tuple[Means, Fingerprint]:
    """Look at this host once, at start: with which means machines run under the folder `root`, and what fits.

    Raises Unavailable, saying what to install, where no machine can run at all.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    program = _program()
    build, machine_type = _build(program), _machine_type(program)
    boot_id = clock.boot_id()
    trial = Trial(program, machine_type, kernel, initramfs)
    kvm = kvm_verdict(trial, root.parent / "kvm.json", f"{boot_id} {build} {machine_type}")
    accelerator = Accelerator.KVM if kvm.usable else Accelerator.TCG
    cpu_model = kvm.cpu_model if kvm.usable else TCG_CPU
    key = RestoreKey(build, machine_type, accelerator, cpu_model)
    first_uid = FIRST_UID if _may_change_user() else None
    fingerprint = Fingerprint(
        host_id=host_id,
        boot_id=boot_id,
        accelerator=accelerator,
        accelerator_reason=kvm.reason,
        restore_keys=(key,),
        cpu_model=_host_cpu(),
        vcpus=len(os.sched_getaffinity(0)),
        memory_mib=_memory_for_guests_mib(),
        disk_gib=max(0, (shutil.disk_usage(root).free >> 30) - _DISK_FOR_HOST_GIB),
        missing=_missing(first_uid),
    )
    return Means(keeper, Hypervisor(program, key), first_uid, trial), fingerprint


def best_machine_type(listing: str) -> str | None:
    """The newest versioned q35 in the text of `-machine help`; a name without version changes with each release."""
    versions = re.findall(r"^pc-q35-(\d+)\.(\d+)\b", listing, flags=re.MULTILINE)
    if not versions:
        return None
    major, minor = max((int(major), int(minor)) for major, minor in versions)
    return f"pc-q35-{major}.{minor}"


def _program() -> str:
    program = shutil.which(PROGRAM)
    if program is None:
        raise Unavailable("no_hypervisor", f"{PROGRAM} is not installed: run `make setup`")
    return program


def _build(program: str) -> str:
    """The exact build, distribution's revision included."""
    first = _ask(program, "--version").splitlines()[0]
    return first.removeprefix("QEMU emulator version ")


def _machine_type(program: str) -> str:
    machine_type = best_machine_type(_ask(program, "-machine", "help"))
    if machine_type is None:
        raise Unavailable("no_machine_type", f"{program} has no versioned q35 machine")
    return machine_type


def _ask(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable("no_hypervisor", f"{argv[0]} does not work: {error}") from error
    return done.stdout


def _may_change_user() -> bool:
    """Root, in a user namespace that has our range."""
    if os.geteuid() != 0:
        return False
    ranges = (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(
        int(first) <= FIRST_UID and int(first) + int(count) >= FIRST_UID + _UIDS
        for first, _, count in ranges
    )


def _missing(first_uid: int | None) -> tuple[str, ...]:
    missing = []
    if first_uid is None:
        missing.append("users of their own for machines (needs root): all run as the worker's user")
    if not limits.available():
        missing.append("memory limits for machines (needs cgroup2 with its memory controller)")
    return tuple(missing)


def _memory_for_guests_mib() -> int:
    all_of_it = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    return max(0, all_of_it - _MEMORY_FOR_HOST_MIB) * _EIGHTHS_FOR_GUESTS // 8


def _host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"
