"""Who mounts bundles on a host, beside its tasks: forks wait for a mount, and no task does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from app.errors import PromigenceError
from app.flow import mount
from workers.pace import JOIN_S, begun
from workers.tasks import Workbench

# What is to be kept warm is looked at this often; forks that wait for a bundle have it looked at at once.
LOOK_PERIOD_S = 5.0

log = structlog.get_logger(__name__)


@contextmanager
def mounting(bench: Workbench) -> Iterator[None]:
    """Inside, what forks wait for and what is to be warm here is mounted, each bundle in a thread of its own.

    A mount that goes on at the end dies with the process; the next process goes on with it.
    """
    stop = threading.Event()
    looks = begun("mounts", lambda: _look(bench), stop, period_s=0.0)
    try:
        yield
    finally:
        stop.set()
        bench.mounts_wanted.set()
        looks.join(timeout=JOIN_S)


def shed(bench: Workbench) -> None:
    """Give up what nobody needs here while the disk is nearly full. Who drains leaves it to who follows."""
    if not bench.takes_new:
        return
    for bundle_id in mount.shed(bench.ports, bench.host):
        log.warning("bundle_given_up", bundle_id=bundle_id, why="the disk is nearly full")


def _look(bench: Workbench) -> None:
    """Once, when somebody asks for it, or after a while."""
    bench.mounts_wanted.wait(LOOK_PERIOD_S)
    bench.mounts_wanted.clear()
    if not bench.takes_new:
        return
    for bundle_id in mount.due(bench.ports, bench.host):
        threading.Thread(
            target=_mount, args=(bench, bundle_id), name=f"mount {bundle_id}", daemon=True
        ).start()


def _mount(bench: Workbench, bundle_id: str) -> None:
    began_ns = bench.ports.clock.boot_ns()
    try:
        fault = mount.mount(bench.ports, bench.host, bundle_id)
    except PromigenceError as error:
        log.warning("mount_interrupted", bundle_id=bundle_id, code=error.code, error=error.message)
        return
    finally:
        bench.mounts_wanted.set()  # there is a turn for the next
    seconds = round((bench.ports.clock.boot_ns() - began_ns) / 1e9, 3)
    if fault is not None:
        reason = str(fault.evidence.get("reason", fault.kind.value))
        log.warning("mount_failed", bundle_id=bundle_id, reason=reason, error=fault.message)
    elif bundle_id in bench.host.bundles.mounted():  # or there was no turn for it
        log.info("bundle_mounted", bundle_id=bundle_id, seconds=seconds)
