"""The doctor beside a stack that runs: it finds what was planted, and what is at work it leaves alone."""

from __future__ import annotations

import json
from typing import Any

import redis

from promigence import Promigence
from tests.integration.stacks import Stack

LASTING = "promigence:planted"


def doctor(stack: Stack, *words: str) -> tuple[int, Any]:
    done = stack.server("doctor", "--json", *words)
    return done.returncode, json.loads(done.stdout)


def test_a_stack_at_work_is_well_and_what_is_planted_in_it_is_mended(
    stack: Stack, client: Promigence
) -> None:
    run = client.runs.start("task-suite", count=2, spend_cap=1.0, hold_seconds=120)
    code, told = doctor(stack, "--fix")
    assert (code, told["findings"]) == (0, [])
    broker = redis.Redis(unix_socket_path=str(stack.run_dir / "redis.sock"))
    staged = stack.directory / "bundles" / "staged" / "build_planted"
    try:
        broker.set(LASTING, b"1")
        staged.mkdir(parents=True)
        code, told = doctor(stack, "--fix")
        seen = {finding["kind"]: finding for finding in told["findings"]}
        # The worker comes by too, and may have been there first.
        assert seen.keys() <= {"redis_key", "bundle"}
        assert seen["redis_key"]["name"] == LASTING
        assert (code, seen["redis_key"]["mended"]) == (0, True)
        assert broker.ttl(LASTING) > 0
        assert not staged.exists()
    finally:
        broker.delete(LASTING)
        broker.close()
    states = client.runs.get(run["run_id"])["progress"]
    assert states["ready"] + states["queued"] + states["restoring"] + states["checking"] == 2
    client.runs.cancel(run["run_id"])
    assert client.runs.wait(run["run_id"], timeout=60)["totals"]["cancelled"] == 2
