"""Cases of a snapshot whose files are not as they were frozen: missing, cut short, or with one bit flipped.

What a fork reads at once is checked before the first fork after any change, the rest behind it, while forks live.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from drills.matrix.case import Case, Expect, Template, breaks, equals, there
from drills.matrix.scene import NotCaused, Scene

SPOILT = Template(name="matrix-spoilt", doomed=True)
# They spoil the same files.
LANE = "spoilt"
MEMORY, STATE, DISK, MANIFEST = "memory.img", "state.bin", "root.img", "manifest.json"
CHUNK_BYTES = 2 << 20
# Past what a fork reads at once, and within the memory of the template.
LATE_CHUNK = 50
CUT_BYTES = 4096
_COPY_S = 60.0
_BUNDLE = "SELECT bundle_id FROM snapshot WHERE name = %s AND deleted_ns IS NULL"

Spoil = Callable[[Path], contextlib.AbstractContextManager[None]]


def missing(name: str) -> Spoil:
    """A file that is not there."""

    @contextlib.contextmanager
    def spoil(bundle: Path) -> Iterator[None]:
        with _aside(bundle / name):
            yield

    return spoil


def cut(name: str) -> Spoil:
    """A file that ends too early."""

    @contextlib.contextmanager
    def spoil(bundle: Path) -> Iterator[None]:
        with _aside(bundle / name) as whole:
            copy = ("cp", "--sparse=always", "--preserve=mode", str(whole), str(bundle / name))
            subprocess.run(copy, check=True, timeout=_COPY_S)
            os.truncate(bundle / name, whole.stat().st_size - CUT_BYTES)
            yield

    return spoil


def flipped(name: str, at: int) -> Spoil:
    """A file with one bit that is not as it was."""

    @contextlib.contextmanager
    def spoil(bundle: Path) -> Iterator[None]:
        _flip(bundle / name, at)
        try:
            yield
        finally:
            _flip(bundle / name, at)

    return spoil


def before(spoil: Spoil) -> Callable[[Scene], contextlib.AbstractContextManager[None]]:
    """Spoilt before the run starts, and mended after it."""

    @contextlib.contextmanager
    def around(scene: Scene) -> Iterator[None]:
        with spoil(_bundle(scene)):
            yield

    return around


@contextlib.contextmanager
def mended(scene: Scene) -> Iterator[None]:
    """Whatever the cause did to the late part of the memory is undone after the run."""
    try:
        yield
    finally:
        if scene.notes.get("flipped"):
            _flip(_bundle(scene) / MEMORY, LATE_CHUNK * CHUNK_BYTES)


def flip_while_it_lives(scene: Scene) -> None:
    """One bit of the memory that a living fork came from."""
    scene.running()
    _flip(_bundle(scene) / MEMORY, LATE_CHUNK * CHUNK_BYTES)
    scene.note("flipped")


def _refused(scene: Scene) -> Iterator[str]:
    """Nothing is forked from it any more, and it is there still."""
    client = scene.rig.client
    later = client.runs.start(
        SPOILT.name, count=1, spend_cap=0.1, verify_each=False, exec={"sh": "exit 0"}
    )
    (fork,) = client.runs.wait(later["run_id"], 60)["forks"]
    failure = fork["failure"]
    seen = None if failure is None else (failure["kind"], failure["phase"])
    if seen != ("snapshot_corrupt", "restore"):
        yield f"a later fork of it: {fork['outcome']} {seen}"
    if not (_bundle(scene) / MEMORY).is_file():
        yield "the bundle, which is the evidence, is gone"


def _bundle(scene: Scene) -> Path:
    for row in scene.rows(_BUNDLE, SPOILT.name):
        return scene.rig.places.directory / "bundles" / "stored" / str(row["bundle_id"])
    raise NotCaused("there is no such snapshot")


@contextlib.contextmanager
def _aside(file: Path) -> Iterator[Path]:
    """The file is elsewhere meanwhile, and back afterwards in place of whatever is there then."""
    elsewhere = file.parents[2] / f"aside-{file.name}"
    file.rename(elsewhere)
    try:
        yield elsewhere
    finally:
        shutil.move(elsewhere, file)


def _flip(file: Path, at: int) -> None:
    """Root may write what is read-only."""
    with file.open("r+b") as opened:
        opened.seek(at)
        (byte,) = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte ^ 1]))


def _unavailable(name: str) -> Expect:
    return breaks("snapshot_unavailable", "restore", equals("file", name), retryable=True)


def _too_short(name: str) -> Expect:
    facts = (equals("file", name), there("expected_bytes"), there("seen_bytes"))
    return breaks("snapshot_corrupt", "restore", *facts, retryable=False)


def _changed(name: str, chunk: int, phase: str = "restore") -> Expect:
    facts = (equals("file", name), equals("chunk", chunk), there("seen_sha256"))
    return breaks("snapshot_corrupt", phase, *facts, retryable=False)


def _case(name: str, shows: str, spoil: Spoil, expect: Expect, **more: bool) -> Case:
    return Case(
        name=name,
        shows=shows,
        template=SPOILT,
        around=before(spoil),
        expect=expect,
        lane=LANE,
        **more,  # type: ignore[arg-type]
    )


_WHAT = {MEMORY: "memory image", STATE: "device state", DISK: "root disk"}
_SHORT = {MEMORY: "memory", STATE: "state", DISK: "disk"}

CASES = (
    *(
        _case(
            f"{_SHORT[name]}-missing",
            f"the snapshot's {what} is not there",
            missing(name),
            _unavailable(name),
        )
        for name, what in _WHAT.items()
    ),
    *(
        _case(
            f"{_SHORT[name]}-cut",
            f"the snapshot's {what} is {CUT_BYTES} bytes short",
            cut(name),
            _too_short(name),
        )
        for name, what in _WHAT.items()
    ),
    *(
        _case(
            f"{_SHORT[name]}-flipped",
            f"one bit of the snapshot's {_WHAT[name]} is flipped, in the part that a fork reads at once",
            flipped(name, at),
            _changed(name, at // CHUNK_BYTES),
        )
        for name, at in ((MEMORY, 3 * CHUNK_BYTES + 7), (STATE, 5), (DISK, CHUNK_BYTES + 9))
    ),
    _case(
        "manifest-flipped",
        "one bit of the snapshot's manifest is flipped",
        flipped(MANIFEST, 40),
        breaks("snapshot_corrupt", "restore", equals("file", MANIFEST), retryable=False),
    ),
    Case(
        name="memory-flipped-late",
        shows="one bit of the memory image is flipped before the first fork, in the part that is read behind it",
        template=SPOILT,
        command="sleep 60",
        around=before(flipped(MEMORY, LATE_CHUNK * CHUNK_BYTES)),
        # Whichever comes first: the fork, or what is read behind it.
        expect=replace(_changed(MEMORY, LATE_CHUNK), phase=None),
        lane=LANE,
    ),
    Case(
        name="memory-flipped-live",
        shows="one bit of the memory image is flipped while a fork of it lives",
        template=SPOILT,
        command="sleep 60",
        around=mended,
        cause=flip_while_it_lives,
        also=_refused,
        expect=_changed(MEMORY, LATE_CHUNK, "exec"),
        lane=LANE,
    ),
)
