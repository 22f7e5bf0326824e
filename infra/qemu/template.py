"""A template: booted once with its memory in a file, then frozen for good."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from app.domain.machine import (
    Accelerator,
    BootImage,
    Bundle,
    MonitorEvent,
    RestoreKey,
    Shape,
)
from app.errors import EnvironmentFault, FailureKind
from app.ports import Clock
from infra import manifest
from infra.qemu import disks
from infra.qemu.argv import fdset
from infra.qemu.home import Home, write_atomically
from infra.qemu.launch import Files
from infra.qemu.qmp import Monitor, MonitorRefusedError

_MEMORY, _STATE, _ROOT, _TOOLS = "memory.img", "state.bin", "root.img", "tools.img"
_KERNEL, _INITRAMFS, _OVERLAY = "vmlinuz", "initramfs.cpio", "overlay.qcow2"
_KEPT = (_MEMORY, _STATE, _ROOT, _TOOLS, _KERNEL, _INITRAMFS)
_WRITTEN_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Notes:
    """What a freeze must know of the boot, also in a worker that did not do it. `state_fd` is QEMU's own number."""

    shape: Shape
    restore_key: RestoreKey
    disk_id: str
    state_fd: int


def prepare(home: Home, image: BootImage, shape: Shape) -> tuple[Files, str]:
    """Copy what the template boots from into its home; returns the files and the id given to its root disk.

    Everything is copied: a release may replace the originals while the template, or a fork of it, still runs.
    """
    files = Files(
        memory=home.directory / _MEMORY,
        state=home.directory / _STATE,
        root=home.directory / _ROOT,
        tools=home.directory / _TOOLS,
        kernel=home.directory / _KERNEL,
        initramfs=home.directory / _INITRAMFS,
    )
    for source, copy in (
        (image.kernel, _KERNEL),
        (image.initramfs, _INITRAMFS),
        (image.tools_disk, _TOOLS),
        (image.root_disk, _ROOT),
    ):
        if not source.is_file():
            raise EnvironmentFault(FailureKind.SNAPSHOT_UNAVAILABLE, f"{source} is missing")
        disks.private_copy(source, home.directory / copy)
    # QEMU opens kernel and initramfs by name as its own user.
    for name in (_KERNEL, _INITRAMFS):
        (home.directory / name).chmod(0o444)
    disks.grow(files.root, shape)
    disk_id = disks.give_id(files.root)
    files.state.touch(mode=0o600)
    with files.memory.open("wb") as memory:
        memory.truncate(shape.memory_mib << 20)
    return files, disk_id


def note(home: Home, notes: Notes) -> None:
    """Keep the notes beside the machine."""
    write_atomically(home.template, json.dumps(asdict(notes)))


def notes_of(home: Home) -> Notes:
    """Raises EnvironmentFault(guest_lost) for a machine that is no template."""
    try:
        raw = json.loads(home.template.read_text())
    except FileNotFoundError as error:
        raise EnvironmentFault(
            FailureKind.GUEST_LOST, f"there is no template {home.name}"
        ) from error
    key = raw["restore_key"]
    restore_key = RestoreKey(**{**key, "accelerator": Accelerator(key["accelerator"])})
    return Notes(Shape(**raw["shape"]), restore_key, raw["disk_id"], raw["state_fd"])


def write_state(monitor: Monitor, notes: Notes) -> None:
    """Stop the machine and write its device state. Its memory is in a file already, so only devices are written.

    Raises MonitorRefusedError, MonitorSilentError, MonitorLostError.
    """
    monitor.execute("stop")
    ignore_memory = {"capability": "x-ignore-shared", "state": True}
    monitor.execute("migrate-set-capabilities", capabilities=[ignore_memory])
    monitor.execute("migrate", uri=f"file:{fdset(notes.state_fd)}")
    wait_migrated(monitor, "the state could not be written")


def wait_migrated(monitor: Monitor, otherwise: str) -> None:
    """Wait until the migration under way has ended. Raises MonitorRefusedError with `otherwise` if it failed."""
    end = monitor.expect(_is_end_of_migration, _WRITTEN_WITHIN_S)
    if end.data["status"] != "completed":
        raise MonitorRefusedError(otherwise)


def collect(home: Home, notes: Notes, into: Path, boot_id: str, clock: Clock) -> Bundle:
    """Move a stopped template's files into a bundle, read-only, with an empty overlay for its forks and a manifest."""
    into.mkdir(parents=True)
    for name in _KEPT:
        shutil.move(home.directory / name, into / name)
    root_bytes = (into / _ROOT).stat().st_size
    disks.make_overlay(into / _OVERLAY, root_bytes)
    names = (*_KEPT, _OVERLAY)
    for name in names:
        _seal(into / name)
    written = manifest.Manifest(
        shape=notes.shape,
        restore_key=notes.restore_key,
        boot_id=boot_id,
        disk_id=notes.disk_id,
        taken_wall_ns=clock.wall_ns(),
        files={name: manifest.record(into / name) for name in names},
    )
    manifest.write(into, written)
    return written.bundle(into)


def _seal(path: Path) -> None:
    """Ours again, and read-only for everyone: forks of any user map it."""
    os.chown(path, os.getuid(), os.getgid())
    path.chmod(0o444)


def _is_end_of_migration(event: MonitorEvent) -> bool:
    return event.name == "MIGRATION" and event.data.get("status") in ("completed", "failed")
