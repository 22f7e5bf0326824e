"""On which hosts a snapshot is kept warm: every host decides alone, and they agree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.disk import DiskRoom
from app.domain.placement import Host
from app.domain.quarantine import Quarantine
from app.domain.warm import WarmTarget, standing, to_keep, warm_page
from tests import builders as a

SHUT = Quarantine("it broke 3 forks in a row", (), (), 0, 0)
NAMES = tuple("abcdefgh")


def host(name: str, **more: object) -> Host:
    seen = a.fingerprint(name)
    whole = Host(name, seen, seen.memory_mib, seen.disk_gib, 16, 16)
    return replace(whole, **more)  # type: ignore[arg-type]


def target(hosts: int = 2, bundle_id: str = "build_1", **more: object) -> WarmTarget:
    made = WarmTarget(
        a.PROJECT, "task-suite", None, hosts, "task-suite@1", bundle_id, str(a.KEY), a.SHAPE
    )
    return replace(made, **more)  # type: ignore[arg-type]


def keepers(of: WarmTarget, hosts: list[Host]) -> set[str]:
    return {each.host_id for each in hosts if to_keep([of], hosts, each.host_id)}


def test_as_many_hosts_as_wanted_keep_it_and_no_more() -> None:
    hosts = [host(name) for name in NAMES]
    assert len(keepers(target(3), hosts)) == 3


def test_who_has_it_goes_before_who_would_have_to_mount_it() -> None:
    hosts = [host(name) for name in NAMES]
    (first,) = keepers(target(1), hosts)
    other = next(name for name in NAMES if name != first)
    having = [
        replace(each, mounted=("build_1",)) if each.host_id == other else each for each in hosts
    ]
    assert keepers(target(1), having) == {other}


def test_where_it_is_mounted_too_often_the_others_may_give_it_up() -> None:
    hosts = [host(name, mounted=("build_1",)) for name in NAMES]
    assert len(keepers(target(2), hosts)) == 2


def test_another_takes_the_place_of_a_host_that_dies_and_the_rest_stay() -> None:
    hosts = [host(name) for name in NAMES]
    before = keepers(target(3), hosts)
    settled = [
        replace(each, mounted=("build_1",)) if each.host_id in before else each for each in hosts
    ]
    gone = min(before)
    after = keepers(target(3), [replace(each, alive=each.host_id != gone) for each in settled])
    assert len(after) == 3
    assert before - {gone} < after


def test_many_bundles_are_spread_over_the_hosts() -> None:
    hosts = [host(name) for name in NAMES]
    kept = [keepers(target(1, f"build_{number}"), hosts) for number in range(200)]
    counts = [sum(name in each for each in kept) for name in NAMES]
    assert sum(counts) == 200
    assert min(counts) >= 10


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"alive": False}, "no heartbeat"),
        ({"draining": True}, "draining"),
        ({"quarantine": SHUT}, "in quarantine"),
        ({"disk_nearly_full": True, "disk_free_bytes": 1 << 29}, "nearly full: 0.5 GiB left"),
        ({"fingerprint": a.fingerprint("b", restore_keys=())}, "cannot restore"),
        ({"fingerprint": a.fingerprint("b", memory_mib=100)}, "too small for a fork of 1 vCPU"),
        ({"unmountable": (("build_1", "throttled by the cloud"),)}, "throttled by the cloud"),
    ],
)
def test_a_host_that_cannot_keep_it_says_why_and_does_not_count(
    change: dict[str, object], why: str
) -> None:
    hosts = [host("a", mounted=("build_1",)), host("b", **change)]
    found = standing(target(2), hosts)
    assert keepers(target(2), hosts) == {"a"}
    assert (found.warm_on, found.coming_on, found.missing, found.met) == (("a",), (), 1, False)
    ((name, said),) = found.unfit
    assert name == "b"
    assert why in said


def test_a_host_that_is_full_of_forks_keeps_it_all_the_same() -> None:
    assert keepers(target(1), [host("a", free_slots=0, free_memory_mib=0)]) == {"a"}


def test_a_target_says_where_it_stands() -> None:
    hosts = [host("a", mounted=("build_1",)), host("b"), host("c", draining=True)]
    assert warm_page(standing(target(4), hosts)) == {
        "hosts": 4,
        "snapshot": "task-suite@1",
        "follows_name": True,
        "met": False,
        "warm_on": ["a"],
        "coming_on": ["b"],
        "missing": 2,
        "unfit": [{"host": "c", "reason": "draining"}],
    }
    met = warm_page(standing(target(1, version=3), hosts))
    assert (met["met"], met["coming_on"], met["follows_name"]) == (True, [], False)


def test_a_disk_between_its_two_marks_is_as_it_was() -> None:
    told = [DiskRoom(free, 100).nearly_full for free in (99, 100, 124, 125)]
    assert told == [True, None, None, False]


@given(
    wanted=st.integers(1, 10),
    mounted=st.sets(st.sampled_from(NAMES)),
    out=st.sets(st.sampled_from(NAMES)),
)
def test_the_hosts_agree_whatever_they_are(wanted: int, mounted: set[str], out: set[str]) -> None:
    hosts = [
        host(name, mounted=("build_1",) if name in mounted else (), draining=name in out)
        for name in NAMES
    ]
    kept, fit = keepers(target(wanted), hosts), set(NAMES) - out
    assert kept == keepers(target(wanted), hosts[::-1])
    assert kept <= fit
    assert len(kept) == min(wanted, len(fit))
    assert len(kept & mounted) == min(wanted, len(fit & mounted))
    found = standing(target(wanted), hosts)
    assert set(found.warm_on) == fit & mounted
    assert set(found.coming_on) == kept - mounted
    assert found.missing == max(0, wanted - len(fit))
