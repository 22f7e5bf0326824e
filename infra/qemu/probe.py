"""Whether an accelerator is to be believed in: only if it has just brought our guest's kernel to its first process.

/dev/kvm may be there and stock kernels still die under it (nested hosts are often so); a device node proves nothing.
"""

from __future__ import annotations

import json
import select
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from app.domain.machine import Accelerator
from infra.qemu.home import write_atomically

BOOTED_WITHIN_S = 10.0
KVM = Path("/dev/kvm")
_FIRST_PROCESS = b"Run /init as init process"
_SEEN_LIMIT_BYTES = 1 << 20
# A trial has no keeper: the kernel ends it with whoever tries, however that ends.
_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")

# Named models, the richest first; `enforce` makes QEMU refuse what the host does not have in full.
KVM_CPUS = (
    "EPYC-Genoa-v1",
    "SapphireRapids-v2",
    "EPYC-Milan-v2",
    "Icelake-Server-v5",
    "EPYC-Rome-v4",
    "Cascadelake-Server-v4",
    "EPYC-v4",
    "Skylake-Server-v4",
    "Haswell-v2",
    "Westmere-v1",
    "kvm64-v1",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether KVM serves here, why, and with which CPU model."""

    usable: bool
    reason: str
    cpu_model: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What to boot: the guest's own kernel and initramfs, under one program and machine type."""

    program: str
    machine_type: str
    kernel: Path
    initramfs: Path


def kvm_verdict(trial: Trial, cache: Path, asked_for: str) -> Verdict:
    """The verdict for `asked_for` (this boot of the host, this QEMU build): cached, or by a trial of some seconds."""
    cached = _cached(cache, asked_for)
    if cached is not None:
        return cached
    verdict = _try_kvm(trial)
    write_atomically(cache, json.dumps({"asked_for": asked_for, **asdict(verdict)}))
    return verdict


def boots(trial: Trial, accelerator: Accelerator, cpu_model: str, within_s: float) -> str | None:
    """Boot the kernel until its first process starts: None if it got there, else what was seen instead."""
    process = subprocess.Popen(
        [*_WITH_US, *_argv(trial, accelerator, cpu_model)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={},
    )
    try:
        assert process.stdout is not None
        return _await_first_process(process.stdout, within_s)
    finally:
        process.kill()
        process.communicate()


def _cached(cache: Path, asked_for: str) -> Verdict | None:
    try:
        known = json.loads(cache.read_text())
        if known.pop("asked_for") == asked_for:
            return Verdict(**known)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no verdict, or one that cannot be read: try anew
    return None


def _try_kvm(trial: Trial) -> Verdict:
    if not KVM.exists():
        return Verdict(False, "there is no /dev/kvm")
    deadline = time.monotonic() + BOOTED_WITHIN_S
    seen = "no CPU model was tried"
    for model in KVM_CPUS:
        within_s = deadline - time.monotonic()
        if within_s <= 0:
            break
        refused = boots(trial, Accelerator.KVM, model, within_s)
        if refused is None:
            return Verdict(True, f"a guest booted under KVM as {model}", model)
        seen = f"{model}: {refused}"
    return Verdict(False, f"no guest booted under /dev/kvm within {BOOTED_WITHIN_S:.0f} s ({seen})")


def _argv(trial: Trial, accelerator: Accelerator, cpu_model: str) -> list[str]:
    return [
        trial.program,
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", f"{trial.machine_type},usb=off,graphics=off"),
        *("-accel", accelerator.value, "-cpu", f"{cpu_model},enforce", "-m", "256M"),
        *("-serial", "stdio"),
        *("-kernel", str(trial.kernel), "-initrd", str(trial.initramfs)),
        *("-append", "console=ttyS0 loglevel=7 panic=-1"),
    ]


def _await_first_process(output: IO[bytes], within_s: float) -> str | None:
    deadline = time.monotonic() + within_s
    seen = b""
    while _FIRST_PROCESS not in seen:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([output], [], [], left_s)[0]:
            return f"silent after: {_last_line(seen)}"
        data = output.read1(65536)  # type: ignore[attr-defined]
        if not data or len(seen) > _SEEN_LIMIT_BYTES:
            return f"ended: {_last_line(seen)}"
        seen += data
    return None


def _last_line(seen: bytes) -> str:
    lines = seen.decode(errors="replace").strip().splitlines()
    return lines[-1][:200].removeprefix("qemu-system-x86_64: ") if lines else "nothing"
