"""What this host can do, as data: accelerator, restore key, room, and in words what it lacks."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app.domain.machine import Accelerator, Fingerprint, RestoreKey
from app.ports import Clock
from infra.qemu import limits
from infra.qemu.argv import Hypervisor
from infra.qemu.launch import Means
from infra.qemu.probe import Trial, Verdict, kvm_verdict
from infra.qemu.programs import PROGRAM, Build, look_at

# A range that no distribution hands out. A machine's user is this plus its keeper's process id (4,194,304 at most).
FIRST_UID = 2_000_000_000
_UIDS = 4_194_304

# The richest named model that TCG knows in full; it has all that x86-64-v2 needs. No AVX: emulated, it slows down what
# it is meant to speed up.
TCG_CPU = "Westmere-v1"

_CGROUPS = Path("/sys/fs/cgroup")
_MEMORY_FOR_HOST_MIB = 1024
# Of the rest, what the hypervisors take for themselves: 24 to 55 MiB beside a guest of 256 to 512.
_EIGHTHS_FOR_GUESTS = 7
_DISK_FOR_HOST_GIB = 4


def survey(
    host_id: str,
    root: Path,
    keeper: Path,
    kernel: Path,
    initramfs: Path,
    clock: Clock,
    programs: tuple[str, ...] = (PROGRAM,),
) -> tuple[tuple[Means, ...], Fingerprint]:
    """Look at this host once, at start: with which means machines run under the folder `root`, and what fits.

    Each QEMU build has means and a restore key of its own, in the order named: templates are frozen with the first, a
    fork is restored by its bundle's. A program that does not work is left out and told of in `missing`. Raises
    Unavailable, saying what to install, where no machine can run at all.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    boot_id, first_uid = clock.boot_id(), FIRST_UID if _may_change_user() else None
    builds, left_out = look_at(programs, first_uid)
    means, reasons = [], []
    for build in builds:
        trial = Trial(build.program, build.machine_type, kernel, initramfs)
        verdict = kvm_verdict(trial, _cache(root, build), _asked_for(boot_id, build))
        hypervisor = Hypervisor(build.program, _key(build, verdict))
        means.append(Means(keeper, hypervisor, first_uid, trial, build.file))
        reasons.append(verdict.reason)
    keys = tuple(each.hypervisor.key for each in means)
    fingerprint = Fingerprint(
        host_id=host_id,
        boot_id=boot_id,
        accelerator=keys[0].accelerator,
        accelerator_reason=reasons[0],
        restore_keys=keys,
        cpu_model=_host_cpu(),
        vcpus=len(os.sched_getaffinity(0)),
        memory_mib=_memory_for_guests_mib(),
        disk_gib=max(0, (shutil.disk_usage(root).free >> 30) - _DISK_FOR_HOST_GIB),
        missing=(*_missing(first_uid), *left_out),
    )
    return tuple(means), fingerprint


def _key(build: Build, kvm: Verdict) -> RestoreKey:
    accelerator = Accelerator.KVM if kvm.usable else Accelerator.TCG
    cpu_model = kvm.cpu_model if kvm.usable else TCG_CPU
    return RestoreKey(build.build, build.machine_type, accelerator, cpu_model)


def _asked_for(boot_id: str, build: Build) -> str:
    return f"{boot_id} {build.build} {build.machine_type}"


def _cache(root: Path, build: Build) -> Path:
    """Where the verdict on this build is kept: programs side by side keep theirs apart."""
    name = hashlib.sha256(build.build.encode()).hexdigest()[:12]
    return root.parent / f"kvm-{name}.json"


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
    in_bytes = (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_container_limits())
    all_of_it = min(in_bytes) >> 20
    return max(0, all_of_it - _MEMORY_FOR_HOST_MIB) * _EIGHTHS_FOR_GUESTS // 8


def _container_limits() -> Iterator[int]:
    """What a container may have, in bytes: its group is the root of what it sees of control groups, of either version.
    The root of a machine has no such file, or one that says more than there is.
    """
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            yield int((_CGROUPS / name).read_text())


def _host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"
