"""Where a snapshot can come to life, and what a version made anew says of the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.domain.cloud import Purpose, Resource, ResourceKind
from app.domain.placement import Host
from app.domain.quarantine import Quarantine
from app.domain.reach import Reachable, reach
from app.domain.snapshot import Origin
from app.domain.snapshot_page import Surroundings, snapshot_page
from tests.builders import KEY, fingerprint, snapshot

BROKEN = Quarantine("broken", (), (), since_ns=0, due_ns=1)
OTHER = replace(KEY, qemu_build="qemu-9.2")
STORED = snapshot(bundle_id="build_1", version=1)


def host(host_id: str, *, key: Any = KEY, **more: Any) -> Host:
    seen = fingerprint(host_id, restore_keys=(key,))
    return Host(host_id, seen, seen.memory_mib, seen.disk_gib, 16, 16, **more)


@pytest.mark.parametrize(
    ("hosts", "state", "why"),
    [
        ((), Reachable.STALE, "no host is up"),
        ((host("a", alive=False),), Reachable.STALE, "no host is up"),
        ((host("a", key=OTHER),), Reachable.STALE, f"restores {KEY}; there are: {OTHER}"),
        (
            (host("a", fetches=False),),
            Reachable.UNREACHABLE,
            "none of the hosts that restore it: a",
        ),
        (
            (host("a", fetches=False, holds=("build_2",)), host("b", key=OTHER)),
            Reachable.UNREACHABLE,
            "none of the hosts that restore it: a",
        ),
        ((host("a", fetches=False, holds=("build_1",)),), Reachable.VERIFIED, None),
        ((host("a", fetches=False, mounted=("build_1",)),), Reachable.VERIFIED, None),
        ((host("a"),), Reachable.VERIFIED, None),
        ((host("a", draining=True),), Reachable.VERIFIED, "is leaving: a"),
        ((host("a", gone_at_ns=7), host("b", draining=True)), Reachable.VERIFIED, "leaving: a, b"),
        ((host("a", draining=True), host("b")), Reachable.VERIFIED, None),
        ((host("a", quarantine=BROKEN),), Reachable.VERIFIED, None),
    ],
)
def test_where_a_snapshot_can_be_restored(
    hosts: tuple[Host, ...], state: Reachable, why: str | None
) -> None:
    found = reach(STORED, hosts)
    assert found.state is state
    assert (found.why is None) is (why is None)
    assert why is None or found.why is None or why in found.why


def test_the_hosts_of_each_kind_are_named() -> None:
    hosts = (
        host("c", fetches=False),
        host("b", key=OTHER),
        host("a"),
        host("d", alive=False),
    )
    assert reach(STORED, hosts).as_dict() == {
        "needs": str(KEY),
        "keys": sorted((str(KEY), str(OTHER))),
        "serving": ["a", "c"],
        "able": ["a"],
        "why": None,
    }


def test_a_page_says_where_the_copies_are() -> None:
    def kept(bundle_id: str, cloud_id: str | None, **more: Any) -> Resource:
        given: dict[str, Any] = {
            "token": f"token of {bundle_id}",
            "kind": ResourceKind.SNAPSHOT,
            "purpose": Purpose.KEEP,
            "bundle_id": bundle_id,
            "size_gib": 3,
            "cloud_id": cloud_id,
            "made_ns": None if cloud_id is None else 1_000_000_000,
            **more,
        }
        return Resource(**given)

    among = Surroundings(
        hosts=(
            host("warm", mounted=("build_1",)),
            host("cold", holds=("build_1",)),
            host("without"),
            host("lost", alive=False, mounted=("build_1",)),
        ),
        targets=(),
        resources=(
            kept("build_2", "snap-2"),
            kept("build_1", "snap-1"),
            kept("build_1", "snap-3", deadline_ns=7),
            kept("build_1", None),
            kept("build_1", "vol-1", kind=ResourceKind.VOLUME, purpose=Purpose.READ),
        ),
        region="eu-central-1",
    )
    page = snapshot_page(STORED, latest=True, among=among)
    of_host = {"where": "host", "region": None, "bytes": STORED.size_bytes, "since": None}
    assert page["bundles"] == [
        {
            "where": "cloud",
            "id": "snap-1",
            "region": "eu-central-1",
            "bytes": 3 << 30,
            "since": "1970-01-01T00:00:01.000Z",
            "mounted": False,
        },
        {**of_host, "id": "warm", "mounted": True},
        {**of_host, "id": "cold", "mounted": False},
    ]


def test_what_differs_is_said_part_by_part() -> None:
    origin = Origin("a@1", "old", {"image": "debian-12/1", "kernel": "k1", "floppy": "f"})
    assert origin.compared("new", {"image": "debian-12/1", "kernel": "k2", "tools": "t"}) == {
        "snapshot": "a@1",
        "differs": {
            "restore_key": {"was": "old", "is": "new"},
            "kernel": {"was": "k1", "is": "k2"},
            "tools": {"was": None, "is": "t"},
            "floppy": {"was": "f", "is": None},
        },
    }


@pytest.mark.parametrize("made_of", [None, "debian", ["debian"]])
def test_a_version_of_an_earlier_release_did_not_keep_what_it_was_made_of(made_of: Any) -> None:
    old = replace(STORED, provenance={"made_of": made_of} if made_of else {})
    assert Origin.of(old) == Origin("task-suite@1", str(KEY), {})
