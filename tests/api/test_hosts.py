"""Hosts as they say what they are."""

from __future__ import annotations

from tests.api.world import Door


def test_a_host_and_its_fitness(door: Door) -> None:
    (host,) = door.get("/v1/hosts")["hosts"]
    assert (host["host_id"], host["state"]) == ("host0", "up")
    assert (host["slots"], host["slots_free"]) == (100, 100)
    assert host["accelerator"] in ("kvm", "tcg")
    assert host["restore_keys"] != []
    assert host["heartbeat_age_seconds"] == 0


def test_a_host_that_falls_silent_is_lost(door: Door) -> None:
    door.stage.clock.advance(60)
    (host,) = door.get("/v1/hosts")["hosts"]
    assert (host["state"], host["heartbeat_age_seconds"]) == ("lost", 60)
