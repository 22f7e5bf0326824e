"""Hosts of a stage whose bundles are stored elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from app.domain.run import Group, RunSpec
from app.errors import EnvironmentFault, FailureKind
from app.ports import HostPorts
from infra.fakes.machines import FakeBundles
from tests.flow.stage import PROJECT, Stage, spec

GIB = 1 << 30
THROTTLED = EnvironmentFault(
    FailureKind.SNAPSHOT_UNAVAILABLE, "the cloud is busy", reason="throttled", request_id="r-1"
)


def bundles(host: HostPorts) -> FakeBundles:
    return cast(FakeBundles, host.bundles)


def bundle_of(stage: Stage, ref: str = "task-suite") -> str:
    return stage.ports.snapshots.get(PROJECT, ref).bundle_id


def beat(stage: Stage) -> None:
    for host in stage.hosts.values():
        stage.ports.hosts.heartbeat(host.host_id, host.bundles.mounted())


def only(stage: Stage, host_id: str) -> HostPorts:
    """Forks go to this host alone."""
    for other in stage.hosts:
        if other != host_id:
            stage.ports.hosts.quarantine(other, "its memory is being changed")
    return stage.hosts[host_id]


def give_up_all(stage: Stage) -> None:
    for host in stage.hosts.values():
        host.bundles.release()
        assert host.bundles.mounted() == ()
    beat(stage)


class Slow(FakeBundles):
    """Mounts take three minutes; `during` is done in the middle of one."""

    def __init__(self, like: FakeBundles, stage: Stage) -> None:
        super().__init__(like._root, like._elsewhere)
        self._stage = stage
        self.during: Any = lambda: None

    def mount(self, bundle_id: str) -> None:
        if bundle_id not in self.known():
            self._stage.clock.advance(180)
            self.during()
        super().mount(bundle_id)


def of(name: str, text: str = "1s exit 0") -> RunSpec:
    """A step of one fork of this snapshot."""
    return spec(text, groups=(Group(name, 1),))


def slowly(stage: Stage, host_id: str) -> Slow:
    host = stage.hosts[host_id]
    slow = Slow(bundles(host), stage)
    stage.hosts[host_id] = replace(host, bundles=slow)
    return slow
