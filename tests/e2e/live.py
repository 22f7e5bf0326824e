"""The flow on real machines in one process: real rows on SQLite, real QEMU, a queue that rings in this thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.domain.machine import Shape
from app.domain.run import ExecSpec, Group, RunSpec
from app.domain.snapshot import Definition
from app.flow import bill, build, recover, report
from app.ports import HostPorts, Images
from infra.bundles import LocalBundles
from infra.clock import HostClock
from infra.egress import EgressProxy, Reach
from infra.fakes.bells import FakeBells
from infra.guest import SshGuest
from infra.qemu.machines import QemuMachines
from infra.store import create_store
from tests.flow.stage import PROJECT, Hears, Stage, ports_of

SHAPE = Shape(vcpus=1, memory_mib=128, disk_gib=1)
POLL_S = 0.02


class Live(Stage):
    """A stage whose host is this machine. Time passes by itself; `patience` is how slow it is."""

    def __init__(
        self, folder: Path, root: Path, machines: QemuMachines, images: Images, patience: float
    ) -> None:
        self.patience = patience
        self.bells = FakeBells()
        self.stores = create_store(f"sqlite:///{folder}/live.db", key_secret=b"k" * 32)
        self.stores.migrate()
        self.ports = ports_of(self.stores, self.bells, HostClock(), images, folder)
        self.worlds = {}
        host_id = machines.fingerprint().host_id
        self.guest = SshGuest(
            lambda name: root / name,
            Hears(self.bells, lambda: "worker1"),
            EgressProxy(Reach().dial),
        )
        bundles = LocalBundles(folder / "bundles")
        self.hosts = {host_id: HostPorts(host_id, "worker1", machines, self.guest, bundles, 2)}
        self.ports.hosts.register(machines.fingerprint(), 8)

    def close(self) -> None:
        """End and forget what is left; nothing may be."""
        left = self.host.machines.known()
        for name in left:
            self.host.machines.kill(name)
            self.host.machines.forget(name)
        self.guest.shut_down()
        self.stores.close()
        assert left == (), "every machine was ended and forgotten by the flow"

    def until(self, condition: Callable[[], Any], seconds: float) -> None:
        """Let the product work until a condition holds."""
        over = time.monotonic() + seconds * self.patience
        while not condition():
            assert time.monotonic() < over, f"it did not come within {seconds} s"
            self.tick()
            time.sleep(POLL_S)

    def built(self, given: Definition) -> dict[str, Any]:
        """Build to its end; the build's page."""
        build_id = str(build.start(self.ports, PROJECT, given, None)["build_id"])

        def page() -> dict[str, Any]:
            return report.build(self.ports, PROJECT, build_id)

        self.until(lambda: page()["state"] in ("verified", "refused", "failed"), 120)
        return page()

    def ended(self, spec: RunSpec) -> dict[str, Any]:
        """Run to its end; the report."""
        run_id = self.start(spec)
        self.until(lambda: self.report(run_id)["final"], 120)
        return self.report(run_id)

    def tick(self, *, billing: bool = True) -> None:
        """One round of everything that goes on beside the bells."""
        self.ring()
        recover.watch_host(self.ports, self.host)
        recover.sweep(self.ports, self.host)
        bill.tick(self.ports)
        recover.tick(self.ports)
        self.ring()


def sh(text: str, limit_s: float = 60) -> ExecSpec:
    """A command of a real guest."""
    return ExecSpec(("/bin/sh", "-c", text), timeout_ns=int(limit_s * 1e9))


def suite(**more: Any) -> Definition:
    """A small environment on busybox; each use names what it changes."""
    given: dict[str, Any] = {
        "name": "suite",
        "image": "busybox",
        "shape": SHAPE,
        "setup": (sh("mkdir -p /workspace && echo made > /workspace/file"),),
        "warm": (sh("sleep 100000 &"),),
        "on_fork": (sh("test -s /run/promigence/fork"),),
        "test": sh("grep -q made /workspace/file && ps | grep -q '[s]leep 100000'"),
        "repeat": 2,
        **more,
    }
    return Definition(**given)


def step(text: str, count: int = 1, **more: Any) -> RunSpec:
    """A step of forks of `suite`."""
    given: dict[str, Any] = {
        "groups": (Group("suite", count, key="group"),),
        "cap_micros": 1_000_000,
        "exec": sh(text),
        **more,
    }
    return RunSpec(**given)
