"""Restore to the acknowledged barrier: the product against the bare mechanism.

The product does the same with a keeper, checks of the bundle, users of their own, and adapters that serve hundreds of
machines. No SSH in either.
"""

from __future__ import annotations

import itertools
import time

from bench import bare
from bench.figures import Figure, Result, interleaved, ratio
from bench.rig import SMALL, Rig

ROUNDS = 25
WITHIN_S = 60.0


def measure(rig: Rig) -> Result:
    """Both on one bundle of busybox, in turn."""
    bundle = rig.small()
    numbers = itertools.count()

    def product() -> float:
        name = f"barrier-{next(numbers)}"
        started = time.perf_counter()
        _, awake = rig.fork(name, bundle)
        seconds = time.perf_counter() - started
        if awake.boot_id != bundle.boot_id:
            raise RuntimeError(f"machine {name} is not the one that was frozen")
        rig.end(name)
        return seconds

    def mechanism() -> float:
        return bare.barrier_s(rig, bundle, f"bare-{next(numbers)}")

    ours, theirs = interleaved(product, mechanism, ROUNDS, WITHIN_S)
    restored, least = Figure("restore to barrier", ours), Figure("the bare mechanism", theirs)
    return Result(
        about={"image": "busybox", "memory_mib": SMALL.memory_mib, "vcpus": SMALL.vcpus},
        figures=(restored, least),
        claims=(ratio("restore to barrier, by the bare mechanism", restored, least, at_most=2.0),),
    )
