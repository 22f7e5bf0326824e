"""Real machines on this host, outside any stack: templates, bundles and forks, all gone at the end."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.domain.machine import (
    Awake,
    Bundle,
    Command,
    Deadline,
    Fingerprint,
    Identity,
    MonitorEvent,
    Shape,
)
from infra.bundles import LocalBundles
from infra.clock import HostClock
from infra.guest import SshGuest
from infra.image.images import LocalImages
from infra.qemu.fingerprint import survey
from infra.qemu.launch import Means
from infra.qemu.machines import QemuMachines

PRODUCTS = Path(__file__).resolve().parents[1] / ".promigence"
SMALL = Shape(vcpus=1, memory_mib=128, disk_gib=1)
SECOND_NS = 1_000_000_000
BOOT_TIMEOUT_S = 150.0
ANSWER_TIMEOUT_S = 60.0
_LEASE_NS = 900 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Pause:
    """How long a template's freeze took: all of it, and the part in which its processor stood still."""

    quiesce_to_frozen_s: float
    stop_to_saved_s: float


@dataclass(frozen=True, slots=True)
class Rig:
    """One host. Names of machines are never used again."""

    root: Path
    means: tuple[Means, ...]
    fingerprint: Fingerprint
    machines: QemuMachines
    guest: SshGuest
    bundles: LocalBundles
    images: LocalImages
    clock: HostClock
    frozen: dict[str, Bundle] = field(default_factory=dict)

    def small(self) -> Bundle:
        """A busybox of 128 MiB, frozen at the first call."""
        if "busybox" not in self.frozen:
            self.boot("busybox", "busybox", SMALL)
            self.frozen["busybox"], _ = self.freeze("busybox")
        return self.frozen["busybox"]

    def boot(self, name: str, image: str, shape: Shape) -> None:
        """Cold-boot a template and pass its barrier."""
        self.machines.boot(name, self.images.boot_image(image), shape, self.deadline())
        self.guest.attach(name, booted_within_s=BOOT_TIMEOUT_S)
        self.guest.wake(name, self.identity(name), ANSWER_TIMEOUT_S)

    def freeze(self, name: str) -> tuple[Bundle, Pause]:
        """Quiesce and freeze a template; its bundle, and how long that took."""
        began = time.perf_counter()
        boot_id = self.guest.quiesce(name)
        self.guest.close(name)
        bundle = self.machines.freeze(name, self.bundles.staging(name), boot_id)
        seconds = time.perf_counter() - began
        saved_s = _stop_to_saved_s(self.machines.events(name))
        self.machines.forget(name)
        return self.bundles.store(bundle.bundle_id), Pause(seconds, saved_s)

    def fork(self, name: str, bundle: Bundle) -> tuple[Identity, Awake]:
        """Restore a machine and pass its barrier; what it was told, and what it answered."""
        told = self.identity(name)
        self.machines.restore(name, bundle, self.deadline())
        self.guest.attach(name)
        return told, self.guest.wake(name, told, ANSWER_TIMEOUT_S)

    def run(self, name: str, step: str, shell: str, timeout_s: float) -> None:
        """Run a command to its end. Raises RuntimeError, with its output, unless it ends with 0."""
        # A fork remembers its template's commands: an id of theirs would not be started again.
        exec_id = f"{step}-{name}"
        command = Command(("/bin/sh", "-c", shell), timeout_ns=int(timeout_s * SECOND_NS))
        self.guest.start(name, exec_id, command)
        end = self.guest.end(name, exec_id, wait_s=timeout_s + ANSWER_TIMEOUT_S)
        if end is None or end.exit_code != 0:
            raise RuntimeError(f"in machine {name}, {shell!r} did not end well: {end}")

    def end(self, name: str) -> None:
        """Leave nothing of a machine."""
        self.guest.close(name)
        self.machines.kill(name)
        self.machines.forget(name)

    def identity(self, name: str) -> Identity:
        """A new one each time."""
        return Identity(
            fork_id=name,
            hostname=name,
            generation=str(uuid.uuid4()),
            machine_id=secrets.token_hex(16),
            nonce=secrets.token_hex(16),
            entropy=secrets.token_bytes(64),
            wall_ns=self.clock.wall_ns(),
        )

    def deadline(self) -> Deadline:
        """Longer than a measure: if the bench is killed, its machines end by themselves."""
        now_ns = self.clock.boot_ns()
        return Deadline(now_ns + _LEASE_NS, now_ns + _LEASE_NS)


@contextmanager
def rigged() -> Iterator[Rig]:
    """This machine as a host, in a folder for temporary files; machines and folder are gone at the end.

    Raises Unavailable where no machine can run.
    """
    guest_files, clock = PRODUCTS / "guest", HostClock()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="promigence-bench-"))
        stack.callback(shutil.rmtree, folder)
        root = folder / "machines"
        kernel, initramfs = guest_files / "vmlinuz", guest_files / "initramfs.cpio"
        keeper = PRODUCTS / "bin" / "keeper"
        means, fingerprint = survey("bench", root, keeper, kernel, initramfs, clock)
        machines = QemuMachines(root, means, fingerprint, clock)
        stack.callback(machines.close)
        guest = SshGuest(lambda name: root / name)
        stack.callback(guest.shut_down)
        bundles = LocalBundles(folder / "bundles")
        images = LocalImages(PRODUCTS / "images", guest_files)
        rig = Rig(root, means, fingerprint, machines, guest, bundles, images, clock)
        stack.callback(_end_all, rig)
        yield rig


def _end_all(rig: Rig) -> None:
    for name in rig.machines.known():
        rig.end(name)


def _stop_to_saved_s(events: tuple[MonitorEvent, ...]) -> float:
    """By the monitor's own words, at the times at which they were heard."""
    stopped_ns = next(event.boot_ns for event in events if event.name == "STOP")
    saved_ns = next(
        event.boot_ns
        for event in events
        if event.name == "MIGRATION" and event.data.get("status") == "completed"
    )
    return (saved_ns - stopped_ns) / SECOND_NS
