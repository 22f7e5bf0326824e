"""What a warm fork saves: a fork to its first command, against cold boot plus set-up of the same image.

The image is the demo's: Debian with a real project installed and its tests in memory. A fork is taken to the barrier,
to hand-over (hooks run, every probe of the fork contract sound) and to the end of its first command, on the host's own
ports: the rows that a stack writes meanwhile are not in these times; they are in those of `bench/execs.py`.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from app.domain.checks import at_barrier, marker_exit, on_channel, refuse_unsound
from app.domain.machine import Bundle, Shape
from bench.figures import Figure, Result, ratio, rounds
from bench.pause import figures as pause_figures
from bench.rig import ANSWER_TIMEOUT_S, Pause, Rig
from demo.environment import prepare
from promigence.definition import load, packed_files
from promigence.types import Definition

TASK = Path(__file__).resolve().parents[1] / "demo" / "task.toml"
COLD_ROUNDS, COLD_WITHIN_S = 2, 150.0
FORK_ROUNDS, FORKS_WITHIN_S = 12, 60.0
STEP_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Cold:
    """One template from nothing, in seconds from its start, and its freeze."""

    booted_s: float
    set_up_s: float
    first_exec_s: float
    pause: Pause
    bundle: Bundle


@dataclass(frozen=True, slots=True)
class Warm:
    """One fork, in seconds from the start of its restore."""

    barrier_s: float
    handed_over_s: float
    first_exec_s: float


def measure(rig: Rig) -> Result:
    """Templates from nothing, then forks of the last one. The first fork fills the page cache and is not counted."""
    prepare()
    definition = load(TASK)
    colds = [cold(rig, f"cold-{n}", definition) for n in rounds(COLD_ROUNDS, COLD_WITHIN_S)]
    hooks = definition["on_fork"]
    warms = [
        _warm(rig, f"warm-{number}", colds[-1].bundle, hooks)
        for number in rounds(FORK_ROUNDS + 1, FORKS_WITHIN_S, least=2)
    ][1:]
    cold = Figure("cold boot and set-up to first exec", tuple(one.first_exec_s for one in colds))
    warm = Figure("fork to first exec", tuple(one.first_exec_s for one in warms))
    return Result(
        about={"image": definition["image"], **definition["shape"], "definition": "demo/task.toml"},
        figures=(
            Figure("fork to barrier", tuple(one.barrier_s for one in warms)),
            Figure(
                "fork to hand-over, contract checked", tuple(one.handed_over_s for one in warms)
            ),
            warm,
            Figure("cold boot to barrier", tuple(one.booted_s for one in colds)),
            Figure("cold boot and set-up", tuple(one.set_up_s for one in colds)),
            cold,
            *pause_figures([one.pause for one in colds]),
        ),
        claims=(ratio("cold to first exec, by fork to first exec", cold, warm, at_least=10.0),),
    )


def cold(rig: Rig, name: str, definition: Definition) -> Cold:
    """Boot, set up, warm and freeze one."""
    with tempfile.TemporaryDirectory() as folder:
        packed = packed_files(definition, TASK.parent, Path(folder))
        started = time.perf_counter()
        rig.boot(name, definition["image"], Shape(**definition["shape"]))
        booted_s = time.perf_counter() - started
        for files in packed:
            with files.tar.open("rb") as tar:
                rig.guest.unpack(name, tar, files.guest_path)
    for number, step in enumerate((*definition["setup"], *definition["warm"])):
        rig.run(name, f"step{number}", step, STEP_TIMEOUT_S)
    set_up_s = time.perf_counter() - started
    rig.run(name, "first", "true", ANSWER_TIMEOUT_S)
    first_exec_s = time.perf_counter() - started
    bundle, pause = rig.freeze(name)
    return Cold(booted_s, set_up_s, first_exec_s, pause, bundle)


def _warm(rig: Rig, name: str, bundle: Bundle, hooks: list[str]) -> Warm:
    started = time.perf_counter()
    told, awake = rig.fork(name, bundle)
    barrier_s = time.perf_counter() - started
    refuse_unsound(at_barrier(awake, told, bundle.boot_id, barrier_s))
    for number, hook in enumerate(hooks):
        rig.run(name, f"hook{number}", hook, ANSWER_TIMEOUT_S)
    marker = secrets.token_hex(16)
    probe = rig.guest.probe(name, marker, marker_exit(marker), ANSWER_TIMEOUT_S)
    handed_over_s = time.perf_counter() - started
    refuse_unsound(on_channel(probe, marker, bundle.disk_id, (), handed_over_s))
    rig.run(name, "first", "true", ANSWER_TIMEOUT_S)
    first_exec_s = time.perf_counter() - started
    rig.end(name)
    return Warm(barrier_s, handed_over_s, first_exec_s)
