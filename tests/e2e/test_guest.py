"""What a machine is inside: its barrier, its identity, its files, and what a fork keeps of its template."""

from __future__ import annotations

import io
import secrets
import tarfile
import time
from dataclasses import replace

import pytest

from app.domain.checks import at_barrier, marker_exit, on_channel
from app.errors import BadRequest, EnvironmentFault, FailureKind, NotFound, TooLarge
from infra.bundles import LocalBundles
from infra.guest import hostkey
from infra.image.images import LocalImages
from tests.e2e.conftest import SHAPE, Factory, Frozen
from tests.e2e.inside import Inside, Machine, identity, new_name, shell

pytestmark = pytest.mark.machines


# The barrier


def test_a_fork_is_warm_and_its_barrier_is_sound(fork: Machine, frozen: Frozen) -> None:
    checks = at_barrier(fork.awake, fork.told, frozen.bundle.boot_id, 0.0)
    assert [(check.name, check.sound) for check in checks] == [
        (name, True) for name in ("barrier", "warm", "entropy", "clock", "identity")
    ]


def test_programs_see_the_identity_that_was_told(machine: Machine) -> None:
    assert machine.says("hostname") == machine.told.hostname
    assert machine.says("cat /etc/machine-id") == machine.told.machine_id
    assert machine.says("cat /run/promigence/fork") == machine.told.generation
    assert machine.says("cat /proc/sys/kernel/random/boot_id") == machine.awake.boot_id


def test_the_clock_runs_with_the_hosts(machine: Machine) -> None:
    before = time.time()
    seen = float(machine.says("date +%s"))
    assert before - 2 <= seen <= time.time() + 2


def test_forks_of_one_memory_share_no_secret(inside: Inside, frozen: Frozen) -> None:
    forks = [inside.fork(frozen.bundle) for _ in range(3)]
    draw = "head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid"
    drawn = [fork.says(draw) for fork in forks]
    pins = [hostkey.pinned(inside.machine_dir(fork.name)) for fork in forks]
    for seen in (drawn, pins, [fork.awake.sample for fork in forks]):
        assert len(set(seen)) == 3
    assert {fork.awake.boot_id for fork in forks} == {frozen.bundle.boot_id}


def test_nothing_is_done_before_the_barrier(factory: Factory) -> None:
    with factory.wire(factory.fork().name) as wire:
        for asked in ("PING n=1", "OPEN n=1", "STATUS id=x", "QUIESCE", "TIME time_ns=1"):
            assert wire.ask(asked)["reason"] == "asleep"
        wire.wake()
        assert wire.ask("PING n=1") == {"verb": "PONG", "n": "1"}


@pytest.mark.parametrize(
    "broken",
    [
        "WAKE",
        "WAKE nonce=00 entropy=zz",
        f"WAKE nonce={'0' * 32} hostname=x entropy={'0' * 126} time_ns=1",
        f"WAKE nonce={'0' * 32} hostname={'x' * 65} entropy={'0' * 128} time_ns=1",
        f"WAKE nonce={'0' * 32} hostname=x entropy={'0' * 128} time_ns=soon",
        f"WAKE nonce={'0' * 32} hostname=x entropy={'0' * 128} time_ns=1 machine_id={'0' * 32}",
    ],
)
def test_half_a_barrier_is_none(factory: Factory, broken: str) -> None:
    with factory.wire(factory.fork().name) as wire:
        assert wire.ask(broken)["reason"] == "not_applied"
        assert wire.ask("PING n=1")["reason"] == "asleep"
        wire.wake()


def test_noise_on_the_port_is_survived(factory: Factory) -> None:
    with factory.wire(factory.fork().name) as wire:
        wire.wake()
        assert wire.ask("\x01\x02nonsense")["reason"] == "unknown_verb"
        assert wire.ask("STATUS id=../../etc")["reason"] == "id"
        assert wire.ask("KILL")["reason"] == "id"
        too_long = "PING n=" + "9" * 200_000
        assert wire.ask(f"{too_long}\nPING n=2") == {"verb": "PONG", "n": "2"}


def test_an_identity_without_an_answer_is_a_failed_barrier(inside: Inside, frozen: Frozen) -> None:
    name = new_name()
    inside.machines.restore(name, frozen.bundle, inside.host.deadline())
    inside.guest.attach(name)
    with pytest.raises(EnvironmentFault) as failed:
        inside.guest.wake(name, identity(name), timeout_s=0.0)
    assert failed.value.kind is FailureKind.BARRIER_FAILED
    inside.machines.kill(name)
    inside.guest.close(name)


def test_only_the_key_that_was_told_is_accepted(fork: Machine) -> None:
    _, other = hostkey.make_host_key()
    hostkey.pin(fork.inside.machine_dir(fork.name), other)
    with pytest.raises(EnvironmentFault, match="another SSH server"):
        fork.guest.open(fork.name, fork.inside.patience_s)


# The contract's probe


def test_the_probe_finds_a_sound_machine_and_leaves_nothing(fork: Machine, frozen: Frozen) -> None:
    marker = secrets.token_hex(16)
    seen = fork.guest.probe(fork.name, marker, marker_exit(marker), fork.inside.patience_s)
    checks = on_channel(seen, marker, frozen.bundle.disk_id, (), 0.0)
    assert [(check.name, check.sound) for check in checks] == [
        ("disk", True), ("channel", True), ("egress", True)
    ]  # fmt: skip
    assert fork.says("ls -A / | grep promigence; true") == ""


def test_the_probe_finds_a_siblings_marker(machine: Machine) -> None:
    machine.says("touch /.promigence-marker-other")
    seen = machine.guest.probe(machine.name, "mine", 1, machine.inside.patience_s)
    machine.says("rm /.promigence-marker-other")
    assert (seen.marker, seen.foreign_markers) == ("mine", ("other",))


def test_a_forks_writes_reach_no_sibling(inside: Inside, frozen: Frozen) -> None:
    first, second = inside.fork(frozen.bundle), inside.fork(frozen.bundle)
    first.says("echo mine >/written; sync")
    assert second.run("cat /written").exit_code == 1
    assert inside.fork(frozen.bundle).run("cat /written").exit_code == 1


# Files


@pytest.mark.parametrize("size", [0, 1, 65536, 3_000_001])
def test_a_file_goes_in_and_comes_out_as_it_was(machine: Machine, size: int) -> None:
    data = secrets.token_bytes(size)
    path = f"/deep/{new_name()}/a file ä"
    assert machine.guest.upload(machine.name, io.BytesIO(data), path, 0o750) == size
    assert machine.says(f"stat -c '%a %u %s' '{path}'") == f"750 0 {size}"
    sink = io.BytesIO()
    assert machine.guest.download(machine.name, path, sink, size) == size
    assert sink.getvalue() == data


def test_an_upload_replaces_a_file_and_writes_through_a_link(machine: Machine) -> None:
    machine.says("echo old >/tmp/real; ln -sf /tmp/real /tmp/link")
    machine.guest.upload(machine.name, io.BytesIO(b"new"), "/tmp/link")
    assert machine.says("cat /tmp/real; test -L /tmp/link") == "new"
    assert machine.says("ls -A /tmp | grep -c promigence; true") == "0"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("relative", "bad_path"),
        ("/nul\0", "bad_path"),
        ("/tmp", "is_a_directory"),
        ("/etc/passwd/below", "path_not_usable"),
        ("/dev/null", "path_not_usable"),
        ("/proc/nothing", "path_not_usable"),
        ("/" + "x" * 300, "path_not_usable"),
    ],
)
def test_a_path_that_cannot_be_written_is_told(machine: Machine, path: str, code: str) -> None:
    with pytest.raises(BadRequest) as refused:
        machine.guest.upload(machine.name, io.BytesIO(b"x" * 200_000), path)
    assert refused.value.code in (code, "no_such_file")
    assert machine.says("test -c /dev/null; echo $?") == "0"


def test_a_source_that_breaks_off_leaves_no_half_file(machine: Machine) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            if not data:
                raise ConnectionError("the blob store went away")
            return data

    with pytest.raises(ConnectionError, match="the blob store went away"):
        machine.guest.upload(machine.name, Broken(b"half"), "/tmp/broken")
    machine.says("while ls -A /tmp | grep -q promigence; do sleep 0.1; done; test ! -e /tmp/broken")


def test_a_sink_that_breaks_is_not_the_machines_fault(machine: Machine) -> None:
    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        machine.guest.download(machine.name, "/bin/busybox", Full(), 10**8)
    assert machine.says("echo fine") == "fine"


def test_what_cannot_be_read_is_told(machine: Machine) -> None:
    def download(path: str, limit_bytes: int) -> int:
        return machine.guest.download(machine.name, path, io.BytesIO(), limit_bytes)

    machine.says("head -c 1000 /dev/zero >/tmp/thousand; rm -f /tmp/pipe; mkfifo /tmp/pipe")
    with pytest.raises(NotFound):
        download("/no/such", 10)
    with pytest.raises(BadRequest):
        download("/tmp", 10)
    with pytest.raises(BadRequest):
        download("/tmp/pipe", 10)
    with pytest.raises(TooLarge):
        download("/tmp/thousand", 999)
    assert download("/tmp/thousand", 1000) == 1000
    with pytest.raises(TooLarge):
        download("/proc/kallsyms", 1000)


def test_a_tar_is_unpacked_as_root_owned_files(machine: Machine) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo("repo/run.sh")
        entry.size, entry.mode, entry.uid = 5, 0o755, 1234
        tar.addfile(entry, io.BytesIO(b"hello"))
    packed.seek(0)
    machine.guest.unpack(machine.name, packed, "/unpacked/here")
    assert machine.says("stat -c '%a %u' /unpacked/here/repo/run.sh") == "755 0"
    assert machine.says("cat /unpacked/here/repo/run.sh") == "hello"
    with pytest.raises(BadRequest):
        machine.guest.unpack(machine.name, io.BytesIO(b"this is no tar" * 100), "/unpacked")


# What a fork keeps of its template


def test_what_was_warmed_lives_on_in_each_fork(
    inside: Inside, images: LocalImages, bundles: LocalBundles
) -> None:
    template = inside.boot(images.boot_image("busybox"), SHAPE)
    template.says("echo seed >/seed; (while sleep 0.05; do echo x >>/ticks; done) & echo warm")
    running = template.start("sleep 60")
    with pytest.raises(EnvironmentFault, match="cannot be frozen: busy"):
        inside.guest.quiesce(template.name)
    inside.guest.interrupt(template.name, running)
    template.end(running)
    boot_id = inside.guest.quiesce(template.name)
    assert boot_id == template.awake.boot_id
    bundle = inside.machines.freeze(template.name, bundles.staging("warmed"), boot_id)
    inside.guest.close(template.name)

    for fork in (inside.fork(bundle), inside.fork(bundle)):
        assert fork.says("cat /seed") == "seed"
        fork.says(
            "n=$(wc -l </ticks); until [ $(wc -l </ticks) -gt $((n + 3)) ]; do sleep 0.05; done"
        )
        with pytest.raises(EnvironmentFault, match="let go of this command's output"):
            fork.guest.end(fork.name, running)


def test_a_machine_that_panics_is_lost(fork: Machine) -> None:
    fork.guest.start(fork.name, new_name(), shell("echo c >/proc/sysrq-trigger"))
    while fork.inside.heard.next_loss(fork.inside.patience_s) != fork.name:
        pass
    with pytest.raises(EnvironmentFault) as lost:
        fork.guest.start(fork.name, new_name(), shell("true"))
    assert lost.value.kind is FailureKind.GUEST_LOST


def test_an_image_that_does_not_boot_says_why(inside: Inside, images: LocalImages) -> None:
    image = images.boot_image("busybox")
    name = new_name()
    inside.machines.boot(
        name, replace(image, tools_disk=image.kernel), SHAPE, inside.host.deadline()
    )
    with pytest.raises(EnvironmentFault, match="tools_disk_not_mountable") as refused:
        inside.guest.attach(name, booted_within_s=inside.patience_s)
    assert refused.value.kind is FailureKind.RESTORE_FAILED
    inside.machines.kill(name)
    inside.guest.close(name)
