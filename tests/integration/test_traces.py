"""Traces of a stack on a real host: each is planted, seen, and made away with; its look-alike stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app.domain.leak import Leak, LeakKind, Trace
from app.errors import Unavailable
from infra.leaks import kernel
from infra.leaks.host import HostTraces
from infra.leaks.queue import QueueTraces
from infra.queue import CONTROL, OF_ONE, host_queue, worker_queue
from tests.integration.test_queue import running

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PATIENCE_S = 10
GONE = "att_gone"


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """The directory of a stack of which nothing runs."""
    for folder in ("machines", "bundles/stored", "bundles/staged", "bundles/checked", "blobs"):
        (tmp_path / "stack" / folder).mkdir(parents=True)
    return tmp_path / "stack"


@pytest.fixture
def traces(stack: Path, tmp_path: Path) -> HostTraces:
    return HostTraces(stack, tmp_path / "products" / "keeper")


class Programs:
    """Processes that look like a machine's, from a copy of `sleep` under another name."""

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, where: Path) -> subprocess.Popen[bytes]:
        where.mkdir(parents=True, exist_ok=True)
        program = self._tmp_path / "bin" / name
        if not program.exists():
            program.parent.mkdir(exist_ok=True)
            shutil.copy(shutil.which("sleep") or "", program)
        started = subprocess.Popen([program, "600"], cwd=where, stdin=subprocess.DEVNULL)
        self._started.append(started)
        return started

    def end(self) -> None:
        for each in self._started:
            each.kill()
            each.wait(PATIENCE_S)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    yield made
    made.end()


def of(traces: HostTraces, kind: LeakKind) -> list[Trace]:
    return [trace for trace in traces.found() if trace.leak.kind is kind]


def test_an_untouched_stack_shows_nothing(traces: HostTraces, stack: Path) -> None:
    (stack / "machines" / "att_1").mkdir()
    (stack / "bundles" / "stored" / "build_1").mkdir()
    (stack / "bundles" / "checked" / "build_1").touch()
    assert [each for each in traces.found() if each.leak.kind is not LeakKind.CONTROL_GROUP] == []


@pytest.mark.parametrize("program", ["qemu-system-x86_64", "keeper"])
@pytest.mark.parametrize("removed", [False, True])
def test_a_process_is_known_by_where_it_stands_be_that_removed(
    traces: HostTraces, stack: Path, programs: Programs, program: str, removed: bool
) -> None:
    home = stack / "machines" / GONE
    planted = programs.start(program, home)
    if removed:
        shutil.rmtree(home)
    (found,) = of(traces, LeakKind.PROCESS)
    assert found == Trace(Leak(LeakKind.PROCESS, f"{GONE}/{planted.pid}", program), GONE)
    assert traces.remove(found.leak)
    assert planted.wait(PATIENCE_S) == -9
    assert of(traces, LeakKind.PROCESS) == []
    assert not traces.remove(found.leak)


def test_processes_that_are_not_this_stacks_machines_are_not_seen(
    traces: HostTraces, stack: Path, tmp_path: Path, programs: Programs
) -> None:
    alike = [
        programs.start("sleep", stack / "machines" / GONE),  # an operator looks around
        programs.start("qemu-system-x86_64", tmp_path / "other" / "machines" / GONE),
        programs.start("qemu-system-x86_64", stack / "bundles" / "staged"),
        programs.start("qemu-system-x86_64", stack / "machines"),
    ]
    assert of(traces, LeakKind.PROCESS) == []
    for each in alike:
        leak = Leak(LeakKind.PROCESS, f"{GONE}/{each.pid}")
        assert not traces.remove(leak)
        assert each.poll() is None


def test_a_removed_file_that_we_hold_open_is_seen(traces: HostTraces, stack: Path) -> None:
    bundle = stack / "bundles" / "stored" / "build_1"
    bundle.mkdir()
    memory, elsewhere = bundle / "memory.img", stack / "removed.txt"
    with memory.open("w"), elsewhere.open("w"):
        memory.unlink()
        elsewhere.unlink()
        (found,) = of(traces, LeakKind.DELETED_FILE)
        assert (found.leak.name, found.owner) == (str(memory), "build_1")
        assert not traces.remove(found.leak)
    assert of(traces, LeakKind.DELETED_FILE) == []


@pytest.fixture
def mounted(stack: Path, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A mount in a machine's directory, with a blank in its path, and another's."""
    points = (stack / "machines" / GONE / "a b", tmp_path / "other" / "machines" / GONE)
    for point in points:
        point.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True, timeout=PATIENCE_S)
    yield points
    for point in points:
        subprocess.run(["umount", point], check=False, capture_output=True, timeout=PATIENCE_S)


@as_root
def test_a_mount_is_taken_away_unless_it_is_in_use(
    traces: HostTraces, mounted: tuple[Path, Path]
) -> None:
    mine, other = mounted
    (found,) = of(traces, LeakKind.MOUNT)
    assert found == Trace(Leak(LeakKind.MOUNT, str(mine)), GONE)
    with (mine / "held").open("w"):
        assert not traces.remove(found.leak)
        assert mine.is_mount()
    assert traces.remove(found.leak)
    assert not mine.is_mount()
    assert not traces.remove(Leak(LeakKind.MOUNT, str(other)))
    assert other.is_mount()


@as_root
def test_a_volume_that_a_bundle_was_being_written_on_is_that_bundles(
    traces: HostTraces, stack: Path
) -> None:
    point = stack / "bundles" / "writing" / "build_1"
    point.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True, timeout=PATIENCE_S)
    (found,) = of(traces, LeakKind.MOUNT)
    assert found == Trace(Leak(LeakKind.MOUNT, str(point)), "build_1")
    assert traces.remove(found.leak)
    assert not point.is_mount()


@pytest.fixture
def looped(stack: Path, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Loop devices on a file of a staged bundle, and on another's file."""
    devices = []
    for directory in (stack / "bundles" / "staged" / "build_1", tmp_path / "other"):
        directory.mkdir(parents=True)
        image = directory / "disk.img"
        image.touch()
        os.truncate(image, 1 << 20)
        done = subprocess.run(
            ["losetup", "--find", "--show", image],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0:
            pytest.skip(f"no loop device here: {done.stderr}")
        devices.append(Path(done.stdout.strip()).name)
    yield devices[0], devices[1]
    for device in devices:
        detach = ["losetup", "--detach", f"/dev/{device}"]
        subprocess.run(detach, check=False, capture_output=True, timeout=PATIENCE_S)


@as_root
def test_a_loop_device_is_detached(traces: HostTraces, looped: tuple[str, str]) -> None:
    mine, other = looped
    (found,) = of(traces, LeakKind.LOOP_DEVICE)
    assert (found.leak.name, found.owner) == (mine, "build_1")
    assert traces.remove(found.leak)
    assert of(traces, LeakKind.LOOP_DEVICE) == []
    assert not traces.remove(found.leak)
    assert not traces.remove(Leak(LeakKind.LOOP_DEVICE, other, found.leak.detail))
    assert (kernel.LOOPS / other / "loop").is_dir()


@as_root
def test_an_empty_group_is_seen_and_removed_and_one_in_use_is_not() -> None:
    parent = _group("promigence-test")
    child = subprocess.Popen(["sleep", "600"])
    try:
        for name in ("empty", "busy"):
            (parent / name).mkdir()
        (parent / "busy" / "cgroup.procs").write_text(str(child.pid))
        (found,) = kernel.groups(parent)
        assert (found.leak.name, found.owner) == ("empty", "empty")
        assert not kernel.remove_group("busy", parent)
        assert kernel.remove_group("empty", parent)
        assert not (parent / "empty").exists()
    finally:
        child.kill()
        child.wait(PATIENCE_S)
        for group in (*parent.iterdir(), parent):
            with suppress(OSError):
                group.rmdir()


def _group(name: str) -> Path:
    """A new control group, in whichever hierarchy this host lets us."""
    root = kernel.GROUPS.parent
    for parent in (root, root / "devices", root / "cpu"):
        group = parent / name
        with suppress(OSError):
            group.mkdir()
            if (group / "cgroup.procs").exists():
                return group
            group.rmdir()
    pytest.skip("no control groups can be made here")


def test_where_there_are_no_groups_none_are_seen(tmp_path: Path) -> None:
    assert list(kernel.groups(tmp_path / "none")) == []


def test_what_was_half_made_or_half_removed_is_seen(traces: HostTraces, stack: Path) -> None:
    half = stack / "bundles" / "stored" / ".build_1.4711"
    half.mkdir()
    (half / "memory.img").touch()
    for marks in ("checked", "refused", "used"):
        (stack / "bundles" / marks).mkdir(exist_ok=True)
        (stack / "bundles" / marks / "build_gone").touch()
    (stack / "blobs" / ".new-abc").touch()
    found = traces.found()
    remains = (LeakKind.BUNDLE_REMAINS, LeakKind.BLOB_REMAINS)
    seen = {trace.leak.name: trace for trace in found if trace.leak.kind in remains}
    assert set(seen) == {
        "bundles/stored/.build_1.4711",
        "bundles/checked/build_gone",
        "bundles/refused/build_gone",
        "bundles/used/build_gone",
        "blobs/.new-abc",
    }
    for trace in seen.values():
        assert trace.age_ns is not None
        assert trace.owner is None
        assert traces.remove(trace.leak)
        assert not traces.remove(trace.leak)
    assert list((stack / "bundles" / "stored").iterdir()) == []


def test_a_folder_that_no_blobs_are_kept_in_is_not_looked_at(stack: Path, tmp_path: Path) -> None:
    elsewhere = HostTraces(stack, tmp_path / "products" / "keeper", blobs=False)
    upload = stack / "blobs" / ".new-abc"
    upload.touch()
    assert LeakKind.BLOB_REMAINS not in {trace.leak.kind for trace in elsewhere.found()}
    assert not elsewhere.remove(Leak(LeakKind.BLOB_REMAINS, "blobs/.new-abc"))
    assert upload.exists()


def test_a_path_that_is_no_remains_is_not_removed(traces: HostTraces, stack: Path) -> None:
    stored = stack / "bundles" / "stored" / "build_1"
    stored.mkdir()
    for name in ("bundles/stored/build_1", "blobs", "../stack", str(stored)):
        assert not traces.remove(Leak(LeakKind.BUNDLE_REMAINS, name))
    assert stored.is_dir()


def test_our_keys_that_last_for_ever_get_an_end_and_others_are_left() -> None:
    # A test's own directory is too deep for a socket.
    with TemporaryDirectory(dir="/tmp", prefix="pmg") as directory:
        socket = Path(directory) / "redis.sock"
        with running(socket) as broker, closing(QueueTraces(f"unix://{socket}")) as traces:
            broker.set("promigence:lasting", b"1")
            broker.set("promigence:ending", b"1", ex=60)
            broker.set("another:lasting", b"1")
            (found,) = traces.found()
            assert found.leak == Leak(LeakKind.REDIS_KEY, "promigence:lasting")
            assert traces.remove(found.leak)
            assert 0 < broker.ttl("promigence:lasting") <= 60
            assert broker.ttl("another:lasting") == -1
            assert traces.found() == ()
            assert not traces.remove(found.leak)
        with closing(QueueTraces(f"unix://{socket}", OF_ONE)) as traces:
            with pytest.raises(Unavailable):
                traces.found()
            assert not traces.remove(found.leak)


def test_bells_of_a_host_that_is_gone_get_an_end_and_those_that_are_rung_now_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TemporaryDirectory(dir="/tmp", prefix="pmg") as directory:
        socket = Path(directory) / "redis.sock"
        with running(socket) as broker, closing(QueueTraces(f"unix://{socket}", OF_ONE)) as traces:
            for queue in (host_queue("i-1"), worker_queue("claim_1"), CONTROL, "another"):
                broker.lpush(queue, b"bell")
            assert traces.found() == ()
            monkeypatch.setattr("infra.leaks.queue.UNHEARD_S", 0)
            leaks = {trace.leak.name: trace.leak for trace in traces.found()}
            assert leaks.keys() == {"host.i-1", "worker.claim_1"}
            assert traces.remove(leaks["host.i-1"])
            assert 0 < broker.ttl("host.i-1") <= 60
            assert {trace.leak.name for trace in traces.found()} == {"worker.claim_1"}
