"""How long a snapshot holds its machine up: quiesce to frozen, and within it stop to state saved."""

from __future__ import annotations

from bench.figures import Figure, Result, rounds
from bench.rig import SMALL, Pause, Rig

ROUNDS = 5
WITHIN_S = 60.0


def measure(rig: Rig) -> Result:
    """Booted busybox templates, each frozen once."""
    pauses = [_one(rig, f"pause-{number}") for number in rounds(ROUNDS, WITHIN_S)]
    return Result(
        about={"image": "busybox", "memory_mib": SMALL.memory_mib, "vcpus": SMALL.vcpus},
        figures=figures(pauses),
    )


def figures(pauses: list[Pause]) -> tuple[Figure, ...]:
    """Of any image's freezes."""
    return (
        Figure("quiesce to frozen", tuple(pause.quiesce_to_frozen_s for pause in pauses)),
        Figure("stop to state saved", tuple(pause.stop_to_saved_s for pause in pauses)),
    )


def _one(rig: Rig, name: str) -> Pause:
    rig.boot(name, "busybox", SMALL)
    bundle, pause = rig.freeze(name)
    rig.bundles.delete(bundle.bundle_id)
    return pause
