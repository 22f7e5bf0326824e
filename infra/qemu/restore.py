"""A fork: a frozen machine's memory mapped privately, a fresh overlay on its disk, its device state loaded."""

from __future__ import annotations

import shutil

from app.domain.machine import Bundle
from infra.qemu.argv import Descriptors, fdset
from infra.qemu.home import Home
from infra.qemu.launch import Files
from infra.qemu.qmp import Monitor
from infra.qemu.template import wait_migrated


def prepare(home: Home, bundle: Bundle) -> Files:
    """Give the fork an overlay of its own: copying a premade empty one takes a fraction of what making one does."""
    shutil.copyfile(bundle.directory / home.overlay.name, home.overlay)
    return Files(
        memory=bundle.memory,
        state=bundle.state,
        root=bundle.root_disk,
        tools=bundle.tools_disk,
        overlay=home.overlay,
    )


def resume(monitor: Monitor, files: Descriptors) -> None:
    """Load the state and let the guest run on, in its barrier.

    Raises MonitorRefusedError, MonitorSilentError, MonitorLostError.
    """
    ignore_memory = {"capability": "x-ignore-shared", "state": True}
    monitor.execute("migrate-set-capabilities", capabilities=[ignore_memory])
    monitor.execute("migrate-incoming", uri=f"file:{fdset(files.state)}")
    wait_migrated(monitor, "its state could not be loaded")
    monitor.execute("cont")
