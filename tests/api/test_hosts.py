"""Hosts as they say what they are."""

from __future__ import annotations

from tests.api.world import STEP, Door


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


def test_a_host_in_quarantine_says_why(door: Door) -> None:
    door.stage.ports.hosts.quarantine("host0", "its memory is being changed")
    (host,) = door.get("/v1/hosts")["hosts"]
    assert host["state"] == "quarantined"
    quarantine = host["quarantine"]
    assert quarantine["since"].startswith("20")
    del quarantine["since"]
    assert quarantine == {
        "reason": "its memory is being changed",
        "kinds": [],
        "by_operator": True,
        "last_test": None,
    }


def test_a_run_that_waits_says_that_its_hosts_are_in_quarantine(suite: Door) -> None:
    suite.stage.ports.hosts.quarantine("host0", "its memory is being changed")
    run_id = suite.post("/v1/runs", STEP, 201)["run_id"]
    suite.stage.run_for(2)
    waits = suite.get(f"/v1/runs/{run_id}")["progress"]["waiting_for"]
    assert waits == ("no host takes forks: host0: in quarantine: its memory is being changed")
