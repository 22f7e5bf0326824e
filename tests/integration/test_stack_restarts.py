"""API and billing may be killed at any moment: what was asked for once exists once, and the sums hold."""

from __future__ import annotations

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from promigence import Promigence, PromigenceError
from tests.integration.stacks import Stack, kill, until

CALLERS, KEYS = 4, 6
KILLS = 2
LIMIT_S = 60.0


@pytest.mark.parametrize("part", ["api", "billing"])
def test_what_is_asked_for_while_a_part_is_killed_exists_once(stack: Stack, part: str) -> None:
    batch, over = f"dying-{part}", threading.Event()
    with stack.client() as client, ThreadPoolExecutor(CALLERS) as pool:
        asking = [pool.submit(ask, client, f"{batch}-{n}", batch, over) for n in range(CALLERS)]
        try:
            for _ in range(KILLS):
                before = stack.pid(part)
                kill(before)
                until(lambda: stack.pids().get(part, before) != before, part)  # noqa: B023
        finally:
            over.set()
        given = {key: run_id for each in asking for key, run_id in each.result(LIMIT_S).items()}
    assert len(given) == CALLERS * KEYS

    with stack.client() as client:
        runs = client.runs.list(labels={"batch": batch})
        assert sorted(run["run_id"] for run in runs) == sorted(given.values())
        for run in runs:
            report = client.runs.wait(run["run_id"], timeout=LIMIT_S)
            assert report["totals"]["passed"] == 2
            assert report["environment_failures"] == []
    told = stack.server("doctor", "--json")
    assert json.loads(told.stdout)["findings"] == []


def ask(client: Promigence, name: str, batch: str, over: threading.Event) -> dict[str, str]:
    """Start runs by keys, and go on asking for the same ones until it is over: each key is one run for ever."""
    given: dict[str, str] = {}
    for number in itertools.count():
        key = f"{name}-{number % KEYS}"
        run_id = start(client, key, batch)
        assert given.setdefault(key, run_id) == run_id
        if over.is_set() and len(given) == KEYS:
            return given
    raise AssertionError("a count does not end")


def start(client: Promigence, key: str, batch: str) -> str:
    """The run of this key, asked for until there is an answer."""
    until_s = time.monotonic() + LIMIT_S
    while True:
        try:
            begun = client.runs.start(
                "task-suite",
                count=2,
                spend_cap=0.01,
                exec={"sh": "sim: 0.2s exit 0"},
                labels={"batch": batch},
                idempotency_key=key,
            )
        except PromigenceError:
            assert time.monotonic() < until_s, f"no answer for {key}"
            time.sleep(0.1)
        else:
            return begun["run_id"]
