"""`forks.exec` of `true` by the SDK, through API, Redis, Celery, guest and back, against the bare channel.

A stack of the bench's own holds a fork; a second machine of the same image and shape has paramiko alone on its port.
Both are asked in turn by this one process.
"""

from __future__ import annotations

import time

from bench import bare
from bench.figures import Claim, Figure, Result, interleaved, rounds
from bench.rig import PRODUCTS, Rig
from demo.stack import running
from promigence import Promigence
from promigence.types import Definition

STACK_DIRECTORY = PRODUCTS / "bench"
ROUNDS, WITHIN_S = 50, 60.0
START_ROUNDS, STARTS_WITHIN_S = 5, 40.0
BUILD_TIMEOUT_S = 180.0
READY_TIMEOUT_S = 60.0
LOOK_S = 0.025
WARM_UPS = 5
DEFINITION: Definition = {
    "name": "bench",
    "image": "busybox",
    "shape": {"vcpus": 1, "memory_mib": 128, "disk_gib": 1},
    "test": {"sh": "true", "repeat": 1},
}


def measure(rig: Rig) -> Result:
    """The difference of the medians in milliseconds; and how long a held fork takes from the call that starts it."""
    bundle = rig.small()
    with running(STACK_DIRECTORY) as stack, bare.channel(rig, bundle, "bare-channel") as transport:
        client = stack.client
        client.snapshots.build(DEFINITION, timeout=BUILD_TIMEOUT_S)
        starts = tuple(_start_s(client) for _ in rounds(START_ROUNDS, STARTS_WITHIN_S))
        fork_id = _hold(client)
        for _ in range(WARM_UPS):
            _exec_s(client, fork_id)
            bare.exec_s(transport, "true")
        ours, theirs = interleaved(
            lambda: _exec_s(client, fork_id),
            lambda: bare.exec_s(transport, "true"),
            ROUNDS,
            WITHIN_S,
        )
    by_sdk, on_channel = Figure("forks.exec of true", ours), Figure("the bare channel", theirs)
    over_ms = (by_sdk.median - on_channel.median) * 1000
    return Result(
        about={"image": "busybox", **DEFINITION["shape"]},
        figures=(by_sdk, on_channel, Figure("runs.start to first exec", starts)),
        claims=(
            Claim("forks.exec over the bare channel, ms at the median", over_ms, at_most=60.0),
        ),
    )


def _start_s(client: Promigence) -> float:
    """One held fork from the call that starts it to the end of its first command; the fork is handed back."""
    started = time.perf_counter()
    fork_id = _hold(client)
    _wait_ready(client, fork_id)
    _exec_s(client, fork_id)
    seconds = time.perf_counter() - started
    client.forks.release(fork_id)
    return seconds


def _hold(client: Promigence) -> str:
    run = client.runs.start("bench", count=1, spend_cap=1.0, verify_each=False, hold_seconds=600)
    return client.runs.forks(run["run_id"])[0]["fork_id"]


def _wait_ready(client: Promigence, fork_id: str) -> None:
    """`forks.exec` would wait as well, by retries a second apart: too coarse to measure with."""
    until = time.monotonic() + READY_TIMEOUT_S
    while client.forks.get(fork_id)["state"] != "ready":
        if time.monotonic() > until:
            raise TimeoutError(f"fork {fork_id} is not ready after {READY_TIMEOUT_S:g} s")
        time.sleep(LOOK_S)


def _exec_s(client: Promigence, fork_id: str) -> float:
    started = time.perf_counter()
    done = client.forks.exec(fork_id, {"sh": "true"})
    seconds = time.perf_counter() - started
    if done["exit_code"] != 0:
        raise RuntimeError(f"true did not end well: {done}")
    return seconds
