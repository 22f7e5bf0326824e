"""Where systemd runs the host a machine starts in a scope of its own, and nothing is made beside systemd's groups."""

from __future__ import annotations

import os
import re
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.domain.machine import Deadline, Shape
from infra.qemu import keeper, limits, scopes
from infra.qemu.home import Home
from infra.stack import pulse

SHAPE = Shape(1, 128, 1)
# A stand-in for systemd-run: it writes down its words, and runs what follows the two dashes as the real one does.
RUNS = """#!/bin/sh
printf '%s\\n' "$@" > "{said}"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def by_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that systemd runs, as far as we can see; the plain folder is where groups of ours would be."""
    booted, groups = tmp_path / "systemd", tmp_path / "cgroup" / "promigence"
    booted.mkdir()
    groups.mkdir(parents=True)
    (groups.parent / "cgroup.controllers").write_text("cpu memory\n")
    monkeypatch.setattr(scopes, "BOOTED", booted)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return groups


def test_no_group_is_made_beside_systemd_s(by_systemd: Path) -> None:
    before = sorted(by_systemd.parent.rglob("*"))
    assert limits.available(by_systemd)
    with ExitStack() as stack:
        assert limits.enter(stack, "m", SHAPE, by_systemd) is None
    limits.clear("m", by_systemd)
    assert sorted(by_systemd.parent.rglob("*")) == before


def test_its_limit_is_the_guest_s_memory_and_qemu_s_own(by_systemd: Path) -> None:
    words = limits.scoped("attempt_1", SHAPE)
    assert words[:2] == ("systemd-run", "--scope")
    assert "--unit=promigence-attempt_1.scope" in words
    assert "--slice=promigence-machines.slice" in words
    limit_bytes = (128 + limits.OVERHEAD_MIB) << 20
    assert f"--property=MemoryMax={limit_bytes}" in words
    assert words[-1] == "--"


def test_its_kills_are_counted_in_its_scope(by_systemd: Path) -> None:
    file = limits.kills_of("attempt_1", by_systemd)
    assert file.parts[-3:] == (
        "promigence-machines.slice",
        "promigence-attempt_1.scope",
        "memory.events",
    )


@pytest.mark.parametrize("lacks", ["root", "systemd", "systemd-run"])
def test_without_one_of_them_there_are_no_scopes(
    by_systemd: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    assert scopes.served()
    if lacks == "root":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    elif lacks == "systemd":
        monkeypatch.setattr(scopes, "BOOTED", by_systemd / "none")
    else:
        monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert not scopes.served()
    assert limits.scoped("m", SHAPE) == ()
    assert limits.kills_of("m", by_systemd) == by_systemd / "m" / "memory.events"


def test_the_words_stand_before_the_keeper_and_what_it_inherits_passes_through(
    tmp_path: Path,
) -> None:
    run, keeps, home = tmp_path / "run", tmp_path / "keeper", Home(tmp_path / "m")
    home.directory.mkdir()
    passed, written = os.pipe()
    os.write(written, b"by number")
    os.close(written)
    run.write_text(RUNS.format(said=tmp_path / "said"))
    keeps.write_text(f'#!/bin/sh\necho "$@" > asked\ncat /dev/fd/{passed} > inherited\nexit 1\n')
    for script in (run, keeps):
        script.chmod(0o755)
    console = os.open("/dev/null", os.O_RDONLY)
    program = keeper.Program(("qemu",), (passed,), console, scoped=(str(run), "-x", "--"))
    try:
        with pytest.raises(keeper.NotStartedError):
            keeper.start(keeps, home, program, Deadline(boot_ns=9, start_by_boot_ns=5))
    finally:
        os.close(passed)
        os.close(console)
    assert (tmp_path / "said").read_text().startswith(f"-x\n--\n{keeps}\n-s\n5\n")
    assert (home.directory / "asked").read_text().strip().endswith("-- qemu")
    assert (home.directory / "inherited").read_text() == "by number"


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_hears_that_a_worker_works_and_that_it_drains(
    tmp_path: Path, abstract: bool
) -> None:
    address = f"@promigence-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.settimeout(5)
        ear.bind(address.replace("@", "\0", 1) if abstract else address)
        say = pulse.notified(address)
        assert say(pulse.ALIVE)
        assert ear.recv(4096) == b"READY=1\nWATCHDOG=1\nSTATUS=works"
        assert say(pulse.DRAINING)
        assert re.match(rb"READY=1\nWATCHDOG=1\nSTATUS=drains\b", ear.recv(4096))
    assert not say(pulse.ALIVE)
