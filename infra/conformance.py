"""The contract of a host's ports as runnable checks: every driver passes the same ones, fakes and real parts alike.

A check takes a Subject and asserts; `CHECKS` lists them all. To hold a new driver to the contract, make a Subject of it
and run them (`tests/contract/test_conformance.py`, `tests/e2e/test_conformance.py`).
"""

from __future__ import annotations

import io
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from app.domain.checks import marker_exit, on_channel, unsound
from app.domain.machine import (
    Awake,
    BootImage,
    Bundle,
    Command,
    CommandEnd,
    Deadline,
    DeathCause,
    Handle,
    Identity,
    Shape,
)
from app.errors import BadRequest, EnvironmentFault, FailureKind, NotFound, TooLarge
from app.ports import Bundles, Clock, Guest, Machines

SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Subject:
    """A host's ports under test. `say(text, exit_code, seconds)` gives argv that does that in its guests.

    `patience` scales every time limit: how much slower than a fast host this one is. `until(condition, seconds)` waits
    for a condition as that driver's clock passes, and says whether it came.
    """

    machines: Machines
    guest: Guest
    bundles: Bundles
    clock: Clock
    image: BootImage
    shape: Shape
    say: Callable[[str, int, float], tuple[str, ...]]
    until: Callable[[Callable[[], bool], float], bool]
    patience: float = 1.0
    made: list[str] = field(default_factory=list)
    bundle: Bundle | None = None

    def name(self) -> str:
        name = f"att_{secrets.token_hex(8)}"
        self.made.append(name)
        return name

    def deadline(self, seconds: float = 600.0) -> Deadline:
        now = self.clock.boot_ns()
        return Deadline(now + int(seconds * self.patience * SECOND_NS), now + 60 * SECOND_NS)

    def candidate(self) -> Bundle:
        """A stored bundle, made once."""
        if self.bundle is None:
            self.bundle = self._make()
        return self.bundle

    def another(self) -> Bundle:
        """One more stored bundle, from which no machine was forked; who asks for it deletes it."""
        bundle_id = f"build_{secrets.token_hex(8)}"
        shutil.copytree(self.candidate().directory, self.bundles.staging(bundle_id))
        return self.bundles.store(bundle_id)

    def _make(self) -> Bundle:
        name, bundle_id = self.name(), f"build_{secrets.token_hex(8)}"
        self.machines.boot(name, self.image, self.shape, self.deadline())
        self.guest.attach(name, booted_within_s=60 * self.patience)
        self.guest.wake(name, identity(self.clock), 30 * self.patience)
        boot_id = self.guest.quiesce(name)
        self.guest.close(name)
        self.machines.freeze(name, self.bundles.staging(bundle_id), boot_id)
        return self.bundles.store(bundle_id)

    def fork(self, seconds: float = 600.0) -> tuple[str, Awake]:
        """A fork past its barrier, its command channel open."""
        name = self.name()
        self.machines.restore(name, self.candidate(), self.deadline(seconds))
        self.guest.attach(name)
        awake = self.guest.wake(name, identity(self.clock), 30 * self.patience)
        self.guest.open(name, 30 * self.patience)
        return name, awake

    def command(
        self, text: str = "", code: int = 0, seconds: float = 0.0, limit_s: float = 60.0
    ) -> Command:
        return Command(self.say(text, code, seconds), int(limit_s * self.patience * SECOND_NS))

    def run(self, name: str, command: Command) -> CommandEnd:
        exec_id = f"exec_{secrets.token_hex(4)}"
        self.guest.start(name, exec_id, command)
        end = self.guest.end(name, exec_id, wait_s=90 * self.patience)
        assert end is not None, "a command of a live machine ends within its limit"
        return end

    def clean_up(self) -> None:
        """End and forget all that was made; then nothing of it may be left."""
        for name in self.made:
            self.machines.kill(name)
            self.guest.close(name)
            self.machines.forget(name)
        if self.bundle is not None:
            self.bundles.delete(self.bundle.bundle_id)
        assert not set(self.machines.known()) & set(self.made), "forgotten machines are not known"
        left = {handle.name for handle in self.machines.live()} & set(self.made)
        assert not left, f"machines live on: {left}"


def identity(clock: Clock) -> Identity:
    """A fork's own identity, made as the flow makes it."""
    number = secrets.token_hex(4)
    return Identity(
        fork_id=f"fork_{number}",
        hostname=f"fork-{number}",
        generation="9f0c1a52-1111-4222-8333-" + secrets.token_hex(6),
        machine_id=secrets.token_hex(16),
        nonce=secrets.token_hex(16),
        entropy=secrets.token_bytes(64),
        wall_ns=clock.wall_ns(),
    )


def check_forks_are_warm_and_differ(subject: Subject) -> None:
    (first, one), (second, two) = subject.fork(), subject.fork()
    bundle = subject.candidate()
    assert one.boot_id == two.boot_id == bundle.boot_id
    assert one.sample != two.sample
    assert one.reseeded
    assert two.reseeded
    assert one.hostname != two.hostname
    assert one.machine_id != two.machine_id
    assert {first, second} <= {handle.name for handle in subject.machines.live()}


def check_the_fork_contract_holds(subject: Subject) -> None:
    name, _ = subject.fork()
    for _ in range(2):  # no trace of the first is left for the second to find
        marker = secrets.token_hex(16)
        probe = subject.guest.probe(name, marker, marker_exit(marker), 30 * subject.patience)
        checks = on_channel(probe, marker, subject.candidate().disk_id, (), 0.0)
        assert unsound(checks) is None, checks


def check_a_command_ends_with_its_code_and_output(subject: Subject) -> None:
    name, _ = subject.fork()
    end = subject.run(name, subject.command("hello", 7))
    assert (end.exit_code, end.signal, end.timed_out) == (7, None, False)
    assert end.stdout.strip() == b"hello"
    assert not end.truncated


def check_a_time_limit_is_a_result_and_output_is_kept(subject: Subject) -> None:
    name, _ = subject.fork()
    limit_s = 1.0
    end = subject.run(
        name, subject.command("early", 0, seconds=600 * subject.patience, limit_s=limit_s)
    )
    assert end.timed_out
    assert end.duration_ns >= limit_s * subject.patience * SECOND_NS * 0.99


def check_one_id_starts_once(subject: Subject) -> None:
    name, _ = subject.fork()
    subject.guest.start(name, "exec_once", subject.command("first", 3))
    subject.guest.start(name, "exec_once", subject.command("second", 4))
    end = subject.guest.end(name, "exec_once", wait_s=60 * subject.patience)
    assert end is not None
    assert (end.exit_code, end.stdout.strip()) == (3, b"first")


def check_an_unknown_command_is_known_not_to_have_started(subject: Subject) -> None:
    name, _ = subject.fork()
    _raises(FailureKind.EXEC_NOT_STARTED, lambda: subject.guest.end(name, "exec_never"))


def check_an_interrupted_command_ends(subject: Subject) -> None:
    name, _ = subject.fork()
    subject.guest.start(name, "exec_long", subject.command(seconds=500, limit_s=900))
    assert subject.guest.end(name, "exec_long") is None
    subject.guest.interrupt(name, "exec_long")
    end = subject.guest.end(name, "exec_long", wait_s=30 * subject.patience)
    assert end is not None
    assert end.exit_code != 0
    assert not end.timed_out
    subject.guest.interrupt(name, "exec_long")


def check_a_running_command_shows_what_it_has_printed(subject: Subject) -> None:
    name, _ = subject.fork()
    subject.guest.start(name, "exec_long", subject.command("early", seconds=500, limit_s=900))
    for _ in range(300):
        if subject.guest.output(name, "exec_long", "stdout", 0, 100) == b"early\n":
            break
        subject.clock.pause(0.1)
    assert subject.guest.output(name, "exec_long", "stdout", 1, 3) == b"arl"
    assert subject.guest.output(name, "exec_long", "stdout", 6, 100) == b""
    assert subject.guest.output(name, "exec_long", "stderr", 0, 100) == b""
    _refuses(NotFound, lambda: subject.guest.output(name, "exec_never", "stdout", 0, 100))
    subject.guest.interrupt(name, "exec_long")


def check_a_grade_follows_its_command_and_may_write_nothing(subject: Subject) -> None:
    name, _ = subject.fork()
    subject.guest.start(name, "task_1", subject.command(code=3))
    assert subject.guest.end(name, "task_1", wait_s=90 * subject.patience) is not None
    subject.guest.start(name, "grade_1", replace(subject.command("graded"), grades="task_1"))
    end = subject.guest.end(name, "grade_1", wait_s=90 * subject.patience)
    assert end is not None
    assert (end.exit_code, end.stdout) == (0, b"graded\n")
    assert subject.guest.result(name, "grade_1", 65536) is None


def check_files_go_both_ways(subject: Subject) -> None:
    name, _ = subject.fork()
    content = secrets.token_bytes(100_000)
    assert subject.guest.upload(name, io.BytesIO(content), "/tmp/deep/er/file", 0o640) == 100_000  # noqa: S108
    sink = io.BytesIO()
    assert subject.guest.download(name, "/tmp/deep/er/file", sink, 1 << 20) == 100_000  # noqa: S108
    assert sink.getvalue() == content
    _refuses(TooLarge, lambda: subject.guest.download(name, "/tmp/deep/er/file", io.BytesIO(), 99))  # noqa: S108
    _refuses(NotFound, lambda: subject.guest.download(name, "/no/such", io.BytesIO(), 99))
    _refuses(BadRequest, lambda: subject.guest.upload(name, io.BytesIO(b""), "relative"))


def check_kill_is_idempotent_and_silent(subject: Subject) -> None:
    assert subject.machines.kill("att_never") is None
    name, _ = subject.fork()
    death = subject.machines.kill(name)
    assert death is not None
    assert death.cause is DeathCause.ASKED
    assert subject.machines.kill(name) == death == subject.machines.death(name)
    assert subject.machines.recover(name) is None
    _raises(FailureKind.GUEST_LOST, lambda: subject.guest.ping(name, 5 * subject.patience))
    subject.guest.close(name)
    subject.guest.close(name)
    subject.machines.forget(name)
    subject.machines.forget(name)
    assert name not in subject.machines.known()


def check_a_deadline_ends_a_machine_and_an_extension_moves_it(subject: Subject) -> None:
    name = subject.name()
    now = subject.clock.boot_ns()
    lease_ns = int(8 * subject.patience) * SECOND_NS
    subject.machines.restore(name, subject.candidate(), Deadline(now + lease_ns, now + lease_ns))
    subject.guest.attach(name)
    extended_ns = now + 2 * lease_ns
    subject.machines.extend(name, extended_ns)
    assert subject.until(lambda: subject.machines.death(name) is not None, 60 * subject.patience)
    death = subject.machines.death(name)
    assert death is not None
    assert death.cause is DeathCause.DEADLINE
    assert now + lease_ns < death.ended_boot_ns
    subject.machines.extend(name, extended_ns)


def check_nothing_starts_after_its_window(subject: Subject) -> None:
    name, bundle = subject.name(), subject.candidate()
    now = subject.clock.boot_ns()
    late = Deadline(now + 60 * SECOND_NS, now - 1)
    _raises(FailureKind.RESTORE_FAILED, lambda: subject.machines.restore(name, bundle, late))
    assert name not in {handle.name for handle in subject.machines.live()}


def check_a_machine_shows_that_it_lives_and_what_its_host_took(subject: Subject) -> None:
    name, _ = subject.fork()
    seen = subject.machines.vitals(name)
    assert seen.keeper_lives
    assert seen.process_state not in (None, "T")
    subject.machines.mark(name, "exec_marked")
    assert subject.machines.marked(name, "exec_marked")
    began_ns = subject.machines.strain(name, "exec_marked").began_boot_ns
    assert began_ns >= seen.boot_ns
    subject.run(name, subject.command(seconds=0.1))
    strain = subject.machines.strain(name, "exec_marked")
    assert strain.began_boot_ns == began_ns
    assert strain.over_ns > 0
    subject.machines.mark(name, "exec_marked")
    assert subject.machines.strain(name, "exec_marked").began_boot_ns > began_ns
    assert (strain.stops, strain.stopped_ns, strain.paused_ns) == (0, 0, 0)
    assert subject.machines.strain(name, "exec_never").began_boot_ns <= began_ns
    subject.machines.kill(name)
    last = subject.machines.vitals(name)
    assert (last.keeper_lives, last.process_state in (None, "T")) == (True, False)
    subject.machines.forget(name)
    gone = subject.machines.vitals(name)
    assert (gone.process_state, gone.keeper_lives) == (None, False)
    assert subject.machines.vitals("att_never").process_state is None
    subject.machines.mark("att_never", "exec_never")


def check_a_guest_boots_here_and_nothing_is_left(subject: Subject) -> None:
    """What a host without a bundle proves itself by."""
    before = subject.machines.known()
    subject.machines.prove()
    assert subject.machines.known() == before


def check_a_machine_is_found_again(subject: Subject) -> None:
    name, _ = subject.fork()
    handle = subject.machines.recover(name)
    assert isinstance(handle, Handle)
    assert handle.name == name
    assert handle in subject.machines.live()
    subject.guest.attach(name)
    subject.guest.ping(name, 10 * subject.patience)
    assert subject.machines.recover("att_never") is None


def check_bundles_are_kept_and_deleted(subject: Subject) -> None:
    bundle = subject.candidate()
    assert subject.bundles.store(bundle.bundle_id) == subject.bundles.open(bundle.bundle_id)
    assert bundle.bundle_id in subject.bundles.mounted()
    subject.bundles.read(bundle.bundle_id)
    assert bundle.bundle_id not in subject.bundles.unread()
    assert bundle.bundle_id not in dict(subject.bundles.refused())
    _raises(FailureKind.SNAPSHOT_UNAVAILABLE, lambda: subject.bundles.read("build_none"))
    subject.bundles.staging("build_half").mkdir(parents=True)
    assert {"build_half", bundle.bundle_id} <= set(subject.bundles.known())
    subject.bundles.delete("build_half")
    assert "build_half" not in subject.bundles.known()
    _raises(FailureKind.SNAPSHOT_UNAVAILABLE, lambda: subject.bundles.open("build_none"))
    _raises(FailureKind.SNAPSHOT_UNAVAILABLE, lambda: subject.bundles.store("build_none"))
    subject.bundles.watch("build_none")
    assert subject.bundles.record("build_none") == 0
    subject.bundles.delete("build_none")


def check_a_bundle_is_given_up_where_it_can_be_had_again(subject: Subject) -> None:
    bundles, bundle = subject.bundles, subject.another()
    assert bundles.evict(bundle.bundle_id) is bundles.stores_elsewhere
    assert (bundle.bundle_id in bundles.mounted()) is not bundles.stores_elsewhere
    if bundles.stores_elsewhere:
        _raises(FailureKind.SNAPSHOT_UNAVAILABLE, lambda: bundles.open(bundle.bundle_id))
    bundles.mount(bundle.bundle_id)
    assert bundles.open(bundle.bundle_id) == bundle
    bundles.release()
    bundles.delete(bundle.bundle_id)
    _raises(FailureKind.SNAPSHOT_UNAVAILABLE, lambda: bundles.mount(bundle.bundle_id))
    assert bundles.evict("build_none")
    _raises(FailureKind.SNAPSHOT_UNAVAILABLE, lambda: bundles.mount("build_none"))


def check_the_bundle_that_was_used_last_is_last(subject: Subject) -> None:
    first, second = subject.candidate().bundle_id, subject.another().bundle_id
    for last, before in ((first, second), (second, first), (first, second)):
        subject.bundles.open(last)
        order = [each for each in subject.bundles.mounted() if each in (first, second)]
        assert order == [before, last]
    subject.bundles.delete(second)


def _raises(kind: FailureKind, act: Callable[[], object]) -> None:
    try:
        act()
    except EnvironmentFault as fault:
        assert fault.kind is kind, f"expected {kind}, seen {fault.kind}: {fault.message}"  # noqa: PT017
        return
    raise AssertionError(f"expected EnvironmentFault({kind})")


def _refuses(error: type[Exception], act: Callable[[], object]) -> None:
    try:
        act()
    except error:
        return
    raise AssertionError(f"expected {error.__name__}")


CHECKS: tuple[Callable[[Subject], None], ...] = (
    check_forks_are_warm_and_differ,
    check_the_fork_contract_holds,
    check_a_command_ends_with_its_code_and_output,
    check_a_time_limit_is_a_result_and_output_is_kept,
    check_one_id_starts_once,
    check_an_unknown_command_is_known_not_to_have_started,
    check_an_interrupted_command_ends,
    check_a_running_command_shows_what_it_has_printed,
    check_a_grade_follows_its_command_and_may_write_nothing,
    check_files_go_both_ways,
    check_kill_is_idempotent_and_silent,
    check_a_deadline_ends_a_machine_and_an_extension_moves_it,
    check_nothing_starts_after_its_window,
    check_a_machine_shows_that_it_lives_and_what_its_host_took,
    check_a_guest_boots_here_and_nothing_is_left,
    check_a_machine_is_found_again,
    check_bundles_are_kept_and_deleted,
    check_a_bundle_is_given_up_where_it_can_be_had_again,
    check_the_bundle_that_was_used_last_is_last,
)
