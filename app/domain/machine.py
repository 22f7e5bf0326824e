"""What a machine is, what it is told at the barrier, what it runs and how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from app.errors import EnvironmentFault, FailureKind

OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What one fork reserves in full on its host."""

    vcpus: int
    memory_mib: int
    disk_gib: int

    def __str__(self) -> str:
        return f"{self.vcpus} vCPU, {self.memory_mib} MiB, {self.disk_gib} GiB of disk"


class Accelerator(StrEnum):
    KVM = "kvm"
    TCG = "tcg"


@dataclass(frozen=True, slots=True)
class RestoreKey:
    """What a frozen machine is tied to: it restores only where all of this is the same."""

    qemu_build: str
    machine_type: str
    accelerator: Accelerator
    cpu_model: str

    def __str__(self) -> str:
        parts = (self.qemu_build, self.machine_type, self.accelerator.value, self.cpu_model)
        return "/".join(parts)


def not_served(needed: RestoreKey, here: Iterable[RestoreKey]) -> EnvironmentFault:
    """What a host says of a bundle that none of its programs may run."""
    keys = [str(key) for key in here]
    return EnvironmentFault(
        FailureKind.SNAPSHOT_UNAVAILABLE,
        f"the bundle needs {needed}; this host restores {', '.join(keys)}",
        reason="key_not_served",
        needed=str(needed),
        here=keys,
    )


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a machine must be gone and until when it may be started, on this host's boot-time clock.

    `epoch` is the deployment's in which it is started, and with which it ends; None for what no row owns.
    """

    boot_ns: int
    start_by_boot_ns: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class BootImage:
    """What a template boots from. `root_disk` is a raw ext4 image, copied before it is written.

    `made_of` names the content of each: the same words, the same bytes.
    """

    root_disk: Path
    kernel: Path
    initramfs: Path
    tools_disk: Path
    made_of: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A frozen machine on this host: memory, device state and disks that belong together."""

    bundle_id: str
    directory: Path
    shape: Shape
    restore_key: RestoreKey
    boot_id: str
    disk_id: str

    @property
    def memory(self) -> Path:
        return self.directory / "memory.img"

    @property
    def state(self) -> Path:
        return self.directory / "state.bin"

    @property
    def root_disk(self) -> Path:
        return self.directory / "root.img"

    @property
    def tools_disk(self) -> Path:
        return self.directory / "tools.img"


@dataclass(frozen=True, slots=True)
class Handle:
    """Enough to find a machine again after its worker restarted; `epoch` as its `Deadline` had it."""

    name: str
    pid: int
    keeper_pid: int
    started_boot_ns: int
    epoch: int | None = None


class DeathCause(StrEnum):
    """Why a machine's process ended, as its keeper and monitor saw it.

    `SHUTDOWN` and `PANICKED`: the guest did it; its monitor's event is the evidence, and we ended the
    process thereupon. `OUT_OF_MEMORY`: the host's kernel killed it, and says so.
    """

    ASKED = "asked"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"
    PANICKED = "panicked"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    EXIT = "exit"
    KEEPER_LOST = "keeper_lost"


@dataclass(frozen=True, slots=True)
class Death:
    """A machine that is gone. `ended_boot_ns` is when its process was known to be gone.

    `seen` is what the kernel or the process's own log said of an end that nobody of ours wished for.
    """

    cause: DeathCause
    exit_code: int | None
    signal: int | None
    ended_boot_ns: int
    late_ns: int = 0
    seen: str = ""


@dataclass(frozen=True, slots=True)
class MonitorEvent:
    """One event of the machine's monitor (QMP), with the host's boot-time reading."""

    name: str
    data: dict[str, object]
    boot_ns: int


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes one fork different from its siblings; told in the barrier's one line."""

    fork_id: str
    hostname: str
    generation: str
    machine_id: str
    nonce: str
    entropy: bytes = field(repr=False)
    wall_ns: int = 0


@dataclass(frozen=True, slots=True)
class Awake:
    """A guest's answer at the barrier, and the host's wall clock around it (ns since the epoch)."""

    nonce: str
    boot_id: str
    sample: str
    guest_wall_ns: int
    host_wall_ns: int
    hostname: str
    machine_id: str
    host_key_sound: bool
    reseeded: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """What the tools disk's probe saw in a guest, over the command channel.

    `marker` is the marker as read back from the root disk; `foreign_markers` are those of other forks that were found
    there. `refused_target_reached`: a target outside the allow-list answered, by the proxy or directly.
    """

    exit_code: int
    disk_id: str
    marker: str
    foreign_markers: tuple[str, ...]
    interfaces: tuple[str, ...]
    refused_target_reached: bool


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a guest: argv as it is executed; `timeout_ns` is its own limit, kept in the guest.

    `user` is a name or a uid in the guest; None is root. `grades` makes it a grade: the id of a command that has ended.
    What that left running is killed first, and `PROMIGENCE_RESULT` names the file that `Guest.result` reads.
    """

    argv: tuple[str, ...]
    timeout_ns: int
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES
    grades: str | None = None


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended. `exit_code` only if it ended by itself; output is head and tail when cut.

    Victims: whether the guest's kernel, out of memory, killed a process of the command, or another one meanwhile.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_ns: int
    stdout: bytes = field(repr=False, default=b"")
    stderr: bytes = field(repr=False, default=b"")
    truncated: bool = False
    victim_of_own_memory: bool = False
    victim_elsewhere: bool = False


def tail(output: bytes) -> str:
    """The last 4 KiB as text; NUL, which PostgreSQL's text cannot hold, is replaced like other broken bytes."""
    return output[-TAIL_BYTES:].decode("utf-8", "replace").replace("\0", "\ufffd")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A host's fitness as data; `missing` says in words what this host cannot do."""

    host_id: str
    boot_id: str
    accelerator: Accelerator
    accelerator_reason: str
    restore_keys: tuple[RestoreKey, ...]
    cpu_model: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    missing: tuple[str, ...] = ()
