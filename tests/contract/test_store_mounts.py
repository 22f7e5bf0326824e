"""Which forks may be claimed where not every bundle is mounted, and what a host needs mounted."""

from __future__ import annotations

from app.domain.fork import EndReason
from app.domain.money import NS_PER_SECOND
from app.domain.mounts import Claimable, Needs
from app.domain.run import Claimed, Closing
from tests import builders as a
from tests.contract.rows import Rows


def claim(
    rows: Rows, *mounted: str, failed_s_ago: dict[str, float] | None = None
) -> Claimed | None:
    failed = {name: int(ago * NS_PER_SECOND) for name, ago in (failed_s_ago or {}).items()}
    of = Claimable(frozenset(mounted), failed)
    return rows.store.attempts.open(a.HOST, "worker1", "boot", 0, None, of=of)


def two_bundles(rows: Rows) -> None:
    """One fork each of `cold`, which waits for longer, and of `warm`."""
    rows.host()
    for bundle_id in ("cold", "warm"):
        rows.start(1, fork_fields={"bundle_id": bundle_id})
        rows.clock.advance(1)
    assert rows.place() == 2


def test_a_fork_whose_bundle_is_mounted_passes_one_that_waited_longer(rows: Rows) -> None:
    two_bundles(rows)
    claimed = claim(rows, "warm")
    assert claimed is not None
    assert claimed.fork.bundle_id == "warm"
    assert claim(rows, "warm") is None
    claimed = claim(rows, "warm", "cold")
    assert claimed is not None
    assert claimed.fork.bundle_id == "cold"


def test_without_a_mount_nothing_is_claimed_and_nothing_ends(rows: Rows) -> None:
    two_bundles(rows)
    assert claim(rows) is None
    assert rows.try_open() is not None  # who asks for no mount gets the next


def test_who_waited_when_a_mount_began_that_failed_is_claimed_and_who_came_later_is_not(
    rows: Rows,
) -> None:
    two_bundles(rows)  # `cold` has waited for two seconds now
    assert claim(rows, failed_s_ago={"cold": 2.5}) is None
    assert claim(rows, failed_s_ago={"warm": 1.5, "other": 0}) is None
    claimed = claim(rows, failed_s_ago={"cold": 1.5})
    assert claimed is not None
    assert claimed.fork.bundle_id == "cold"
    rows.clock.advance(5)
    rows.close(claimed, 5, None, a.failed())  # replaced: it waits from now on
    assert rows.place() == 1
    assert claim(rows, failed_s_ago={"cold": 6.5}) is None
    assert claim(rows, failed_s_ago={"cold": 0}) is not None


def test_a_host_needs_what_its_forks_wait_for_the_oldest_first(rows: Rows) -> None:
    two_bundles(rows)
    rows.start(2, fork_fields={"bundle_id": "warm"})
    assert rows.store.warm.needs(a.HOST).waiting == {"cold": 1, "warm": 1}
    rows.place()
    needs = rows.store.warm.needs(a.HOST)
    assert list(needs.waiting.items()) == [("cold", 1), ("warm", 3)]
    assert needs.in_use == {"cold", "warm"}
    assert rows.store.warm.needs("host9") == Needs()


def test_a_host_needs_what_its_forks_run_on_until_they_have_ended(rows: Rows) -> None:
    two_bundles(rows)
    claimed = claim(rows, "warm")
    assert claimed is not None
    needs = rows.store.warm.needs(a.HOST)
    assert needs.waiting == {"cold": 1}
    assert needs.in_use == {"cold", "warm"}
    rows.close(rows.ready(claimed), 5)
    assert rows.store.warm.needs(a.HOST).in_use == {"cold"}


def test_a_candidate_is_needed_until_its_build_is_settled(rows: Rows) -> None:
    rows.host()
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    assert rows.store.warm.needs(a.HOST) == Needs()
    rows.place()
    claimed = rows.store.attempts.open(a.HOST, "worker1", "boot", 0, template.fork_id)
    assert claimed is not None
    held = Needs(candidates=frozenset({build.build_id}))
    assert rows.store.warm.needs(a.HOST) == held
    more = (a.fork(run.run_id, 0, bundle_id=build.build_id, grant_micros=100_000),)
    rows.store.attempts.close(claimed, Closing(5 * NS_PER_SECOND, EndReason.COMMAND_PASSED), more)
    assert rows.store.warm.needs(a.HOST) == held
    rows.store.builds.accept(build.build_id, a.snapshot(bundle_id=build.build_id))
    assert rows.store.warm.needs(a.HOST) == Needs()
