"""What it is worth to know the working set: from a cold volume to a fork's first command, at two rates of its bytes.

A volume that was just made from a snapshot brings each block at its first touch, and no more than so many MiB a second.
What a host may do about it before its first fork: nothing, so that the fork waits for what it touches; read all; read
the start of each file, which is what is checked where nothing was recorded; or read, and check, what the verification
forks were seen to read. That again is recorded twice: as it is on a host that reads ahead on its disk as Linux does by
itself, and on one that does not. Each round is cold: mounted anew, nothing of the volume in memory. All in turn.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from app.domain.checks import marker_exit
from app.domain.machine import Bundle
from bench.figures import Claim, Figure, Result, Unit, rounds
from bench.rig import ANSWER_TIMEOUT_S, Rig
from bench.volume import READ_AHEAD_KIB, Traffic, Volume, volume
from bench.warm import TASK, cold
from demo.environment import prepare
from infra import manifest, working_set
from infra.bundles import LocalBundles
from infra.qemu.disks import private_copy
from promigence.definition import load
from promigence.types import Definition

RATES_MIB = (100, 300)
ROUNDS, WITHIN_S = 5, 90.0
VERIFICATION_FORKS = 2
TEST_TIMEOUT_S = 120.0
# One of the project's modules: a command that needs what an agent's would.
FIRST_EXEC = "python -m rollout.warm_tests tests/test_mathutils.py"
NOTHING, WHOLE, START = "nothing", "whole image", "start of each file"
RECORDED, NARROW = "working set", "working set without read-ahead"
MIB = Unit("_mib", 2, "MiB", 1, 1)
READS = Unit("_reads", 0, "reads", 1, 0)
_VOLUME_MIB = 6 * 1024
_numbers = itertools.count()

ReadFirst = Callable[[Path, manifest.Manifest], object]


@dataclass(frozen=True, slots=True)
class Way:
    """What a host does before its first fork, at a rate of the volume's."""

    first: str
    rate_mib: int


@dataclass(frozen=True, slots=True)
class Start:
    """One cold start: seconds from the mount to the end of the first command, and what the volume brought meanwhile."""

    seconds: float
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class Environment:
    """The demo's, in a bundle on a volume."""

    rig: Rig
    definition: Definition
    slow: Volume
    directory: Path

    def start(self, way: Way, read_first: ReadFirst) -> Start:
        """Mount it cold and take a first fork to the end of its first command."""
        self.slow.cool()
        before = self.slow.traffic()
        with self.slow.limited(way.rate_mib), self._machine() as name:
            began = time.perf_counter()
            contents = manifest.read(self.directory)
            read_first(self.directory, contents)
            self.rig.fork(name, contents.bundle(self.directory))
            self._run_hooks(name)
            self.rig.run(name, "first", FIRST_EXEC, ANSWER_TIMEOUT_S)
            return Start(time.perf_counter() - began, self.slow.traffic().since(before))

    def verify(self, bundle: Bundle) -> None:
        """One fork to the end of the environment's own test, as when a snapshot is verified."""
        with self._machine() as name:
            self.rig.fork(name, bundle)
            self._run_hooks(name)
            marker = secrets.token_hex(16)
            self.rig.guest.probe(name, marker, marker_exit(marker), ANSWER_TIMEOUT_S)
            self.rig.run(name, "test", self.definition["test"]["sh"], TEST_TIMEOUT_S)

    @contextmanager
    def _machine(self) -> Iterator[str]:
        """A name; the machine that gets it is gone at the end, so that the volume can be."""
        name = f"read-ahead-{next(_numbers)}"
        try:
            yield name
        finally:
            self.rig.end(name)

    def _run_hooks(self, name: str) -> None:
        for number, hook in enumerate(self.definition["on_fork"]):
            self.rig.run(name, f"hook{number}", hook, ANSWER_TIMEOUT_S)


def measure(rig: Rig) -> Result:
    """On the demo's image, its working set recorded as a build does it."""
    prepare()
    definition = load(TASK)
    frozen = cold(rig, "read-ahead", definition).bundle
    with volume(rig.root.parent / "volume", _VOLUME_MIB) as slow:
        staged = _staged(frozen, LocalBundles(slow.folder))
        environment = Environment(rig, definition, slow, staged)
        sets = {
            RECORDED: _recorded(environment, READ_AHEAD_KIB),
            NARROW: _recorded(environment, 0),
        }
        slow.read_ahead(READ_AHEAD_KIB)
        starts = _starts(environment, sets)
        mib = {name: round(known.size_bytes / (1 << 20), 1) for name, known in sets.items()}
        bundle_mib = round(sum(f.stat().st_blocks for f in staged.iterdir()) / 2048, 1)
    return Result(
        about={
            "image": definition["image"],
            **definition["shape"],
            "first_exec": FIRST_EXEC,
            "read_ahead_kib": READ_AHEAD_KIB,
            "verification_forks": VERIFICATION_FORKS,
            "bundle_mib": bundle_mib,
            "working_sets_mib": mib,
        },
        figures=tuple(_figures(starts)),
        claims=tuple(_claims(starts)),
    )


def _staged(frozen: Bundle, bundles: LocalBundles) -> Path:
    """A copy on the volume, with its holes."""
    staged = bundles.staging(frozen.bundle_id)
    staged.mkdir()
    for file in frozen.directory.iterdir():
        private_copy(file, staged / file.name)
        (staged / file.name).chmod(0o444)
    return staged


def _recorded(environment: Environment, read_ahead_kib: int) -> working_set.WorkingSet:
    """As a build does it, on a host whose disk reads so far ahead."""
    slow, directory = environment.slow, environment.directory
    bundles, bundle_id = LocalBundles(slow.folder), directory.name
    slow.read_ahead(read_ahead_kib)
    bundles.watch(bundle_id)
    for _ in range(VERIFICATION_FORKS):
        environment.verify(bundles.open(bundle_id))
    bundles.record(bundle_id)
    known = working_set.read(directory, manifest.read(directory))
    if known is None:
        raise RuntimeError("no working set was recorded")
    return known


def _starts(
    environment: Environment, sets: dict[str, working_set.WorkingSet]
) -> dict[Way, list[Start]]:
    """Of each way, in turn; each round begins with another."""
    read_first: dict[str, ReadFirst] = {
        NOTHING: lambda _directory, _contents: None,
        WHOLE: manifest.check_chunks,
        START: manifest.check_working_set,
        RECORDED: lambda directory, _: working_set.check(directory, sets[RECORDED]),
        NARROW: lambda directory, _: working_set.check(directory, sets[NARROW]),
    }
    ways = [Way(first, rate) for rate in RATES_MIB for first in read_first]
    taken: dict[Way, list[Start]] = {way: [] for way in ways}
    for number in rounds(ROUNDS, WITHIN_S):
        for way in ways[number:] + ways[:number]:
            taken[way].append(environment.start(way, read_first[way.first]))
    return taken


def _figures(starts: dict[Way, list[Start]]) -> Iterator[Figure]:
    for way, taken in starts.items():
        what = f"{way.rate_mib} MiB/s, {way.first} first"
        yield Figure(f"{what}: to first exec", tuple(start.seconds for start in taken))
        read = tuple(start.traffic.bytes / (1 << 20) for start in taken)
        yield Figure(f"{what}: brought", read, MIB)
        yield Figure(f"{what}: in", tuple(float(start.traffic.reads) for start in taken), READS)


def _claims(starts: dict[Way, list[Start]]) -> Iterator[Claim]:
    """Of bytes and reads, which do not depend on what else the machine does."""
    for rate in RATES_MIB:
        nothing, whole, ours = (starts[Way(first, rate)] for first in (NOTHING, WHOLE, RECORDED))
        bytes_ratio = median(_bytes(whole)) / median(_bytes(ours))
        yield Claim(f"{rate} MiB/s, bytes, whole image by working set", bytes_ratio, at_least=3.0)
        reads_ratio = median(_reads(nothing)) / median(_reads(ours))
        yield Claim(f"{rate} MiB/s, reads, nothing first by working set", reads_ratio, at_least=2.0)


def _bytes(taken: list[Start]) -> list[int]:
    return [start.traffic.bytes for start in taken]


def _reads(taken: list[Start]) -> list[int]:
    return [start.traffic.reads for start in taken]
