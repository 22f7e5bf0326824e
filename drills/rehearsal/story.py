"""What happens in the rehearsal, act by act; each returns what was seen, and judges nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from app.domain.cloud import TAG_DEADLINE, TAG_DEPLOYMENT, TAG_TOKEN
from drills.rehearsal.deployment import DEPLOYMENT, Deployment
from drills.rehearsal.hosts import Host
from drills.rehearsal.zone import ZONE
from drills.steps import until
from promigence import Promigence
from promigence.types import Definition, Fork, Report

SNAPSHOT = "rehearsal"
CAP_USD = 1.0
# Restored by emulation, many at once, on two cores.
BUILD_WITHIN_S, MOUNT_WITHIN_S, RUN_WITHIN_S = 240.0, 60.0, 240.0
NOTICE_S = 120.0
TEST_S, COMMAND_S = 10.0, 20.0
# With four on two hosts, each has some.
HELD = 4
_ON_A_MACHINE = frozenset({"restoring", "checking", "ready", "running"})
LONG_AGO_NS = 900 * 1_000_000_000
_OLDER = (
    "UPDATE resource SET intended_ns = intended_ns - %s, made_ns = made_ns - %s"
    " WHERE host_id = %s RETURNING token"
)


@dataclass(frozen=True, slots=True)
class Step:
    """What the step is: so many forks, each busy for so long.

    `hurried`: nobody waits for reapers to come by.
    """

    forks: int
    busy_s: float
    hurried: bool = False


def build(here: Deployment, host: Host) -> dict[str, Any]:
    """A snapshot is made on one host, stored outside of it, and restored there from what was stored."""
    began = time.monotonic()
    built = here.client.snapshots.build(_definition(), timeout=BUILD_WITHIN_S)
    return {
        "host": host.instance_id,
        "snapshot": built["snapshot"],
        "seconds": _since(began),
        "cloud_snapshots": kept(here),
    }


def spread(here: Deployment, hosts: tuple[Host, ...]) -> list[dict[str, Any]]:
    """Hosts come up and make the snapshot their own; how long each took for it."""
    for host in hosts:
        host.up()
    here.client.snapshots.warm(SNAPSHOT, hosts=len(here.hosts))

    def is_warm() -> bool:
        return all(host["mounted"] for host in here.client.hosts.list())

    until(is_warm, MOUNT_WITHIN_S, "every host has the snapshot")
    return [_restored(host) for host in hosts]


def begin(here: Deployment, step: Step) -> str:
    """The step, over all hosts."""
    return here.client.runs.start(
        SNAPSHOT,
        count=step.forks,
        spend_cap=CAP_USD,
        verify_each=True,
        exec={"sh": f"sleep {step.busy_s:g}; echo $((6 * 7))", "timeout_seconds": COMMAND_S},
        environment_retries=1,
        rerun_started=False,
    )["run_id"]


def lose(here: Deployment, run_id: str, host: Host) -> dict[str, Any]:
    """One host is gone in the middle of it, and its instance is terminated; a volume that no row knows is left too."""

    def there(states: frozenset[str]) -> list[Fork]:
        forks = here.client.runs.forks(run_id)
        return [f for f in forks if f["host"] == host.instance_id and f["state"] in states]

    until(
        lambda: there(frozenset({"running"})) or _is_over(here, run_id),
        RUN_WITHIN_S,
        "a command runs on the host that is to be lost",
    )
    forks, volumes = there(_ON_A_MACHINE), _volumes_at(here, host)
    killed = host.power_off()
    here.terminate(host)
    host.remove()
    _make_old(here, host)
    return {
        "host": host.instance_id,
        "forks": {fork["fork_id"]: fork["state"] for fork in forks},
        "processes": killed,
        "volumes": volumes,
        "stray": _stray(here),
    }


def give_notice(here: Deployment, step_id: str, lost: Host, host: Host) -> dict[str, Any]:
    """When all but the lost host are idle, forks are held, and the host of some of them is told that its spot capacity
    is taken back.
    """

    def idle() -> bool:
        forks = here.client.runs.forks(step_id)
        return all(f["state"] == "ended" for f in forks if f["host"] != lost.instance_id)

    until(idle, RUN_WITHIN_S, "the forks of the other hosts have ended")
    run_id = here.client.runs.start(
        SNAPSHOT, count=HELD, spend_cap=CAP_USD, verify_each=False, hold_seconds=120
    )["run_id"]
    until(lambda: len(_held(here.client, run_id)) == HELD, RUN_WITHIN_S, "forks that are held")
    here.zone.give_notice(host.instance_id, NOTICE_S)
    began = time.monotonic()

    def drains() -> bool:
        return any(fork["draining"] for fork in _held(here.client, run_id))

    until(drains, NOTICE_S, "a fork whose host drains")
    noticed_s, held = _since(began), _held(here.client, run_id)
    seen = {
        "host": host.instance_id,
        "seconds": noticed_s,
        "held": [
            {"host": fork["host"], "draining": fork["draining"], "gone_at": fork["gone_at"]}
            for fork in held
        ],
    }
    for fork in held:
        here.client.forks.release(fork["fork_id"])
    here.client.runs.wait(run_id, RUN_WITHIN_S)
    return seen


def finish(here: Deployment, run_id: str) -> Report:
    """Wait for the step's end."""
    here.client.runs.wait(run_id, RUN_WITHIN_S)
    return here.client.runs.report(run_id)


def kept(here: Deployment) -> list[str]:
    """The account's snapshots."""
    found = here.account.ec2().describe_snapshots(OwnerIds=["self"])["Snapshots"]
    return sorted(snapshot["SnapshotId"] for snapshot in found)


def _definition() -> Definition:
    return {
        "name": SNAPSHOT,
        "image": "busybox",
        "shape": {"vcpus": 1, "memory_mib": 128, "disk_gib": 1},
        "test": {"sh": "true", "timeout_seconds": TEST_S, "repeat": 1},
        "spend_cap": CAP_USD,
    }


def _restored(host: Host) -> dict[str, Any]:
    told = next(host.said("bundle_mounted"))
    return {"host": host.instance_id, "bundle": told["bundle_id"], "seconds": told["seconds"]}


def _make_old(here: Deployment, host: Host) -> None:
    """The reaper believes no listing about what is younger than ten minutes: for these rows they have passed."""
    here.database.rows(_OLDER, LONG_AGO_NS, LONG_AGO_NS, host.instance_id)


def _stray(here: Deployment) -> str:
    """A volume of this deployment that no row knows, as if its maker had died with the answer."""
    tags = {TAG_DEPLOYMENT: DEPLOYMENT, TAG_TOKEN: "stray", TAG_DEADLINE: "0"}
    made = here.account.ec2().create_volume(
        AvailabilityZone=ZONE,
        Size=1,
        TagSpecifications=[
            {
                "ResourceType": "volume",
                "Tags": [{"Key": name, "Value": value} for name, value in tags.items()],
            }
        ],
    )
    return made["VolumeId"]


def _volumes_at(here: Deployment, host: Host) -> list[str]:
    attached = [{"Name": "attachment.instance-id", "Values": [host.instance_id]}]
    found = here.account.ec2().describe_volumes(Filters=attached)["Volumes"]  # type: ignore[arg-type]
    return sorted(volume["VolumeId"] for volume in found)


def _is_over(here: Deployment, run_id: str) -> bool:
    return here.client.runs.get(run_id)["final"]


def _held(client: Promigence, run_id: str) -> list[Fork]:
    return [fork for fork in client.runs.forks(run_id) if fork["state"] == "ready"]


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)
