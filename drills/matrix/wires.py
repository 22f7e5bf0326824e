"""Cases on the wire to a guest's control port: what it may fail to do at its barrier, and what it may say after."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from drills.matrix.case import Case, Fact, breaks, equals, fails, passes, says, there
from drills.matrix.control_proxy import Rule, Tampering, field, tampering, with_field
from drills.matrix.scene import Scene

_CLOCK_OFF_NS = 60 * 1_000_000_000
_OTHER_BOOT = b"00000000-1111-2222-3333-444444444444"
_OTHER_NONCE = b"0123456789abcdef" * 2
_BARRIER_S = 25.0
_GARBAGE = b"\n".join((b"\x00\xff garbage", b"ENDED id=nobody", b"PONG n=-1", b"x" * 100_000))
_GARBAGE_TIMES = 40


def met(scene: Scene) -> None:
    """The cause of all of them: the line was on its way, and was tampered with."""
    scene.until(lambda: scene.notes.get("tampered"), "a line to tamper with")


def _on_the_wire(
    told: Callable[[Scene, bytes], bytes | None] | None = None,
    said: Callable[[Scene, bytes], bytes | None] | None = None,
) -> Callable[[Scene], AbstractContextManager[None]]:
    """Change lines of these verbs only; `told` are WAKE and TIME, `said` are AWAKE."""

    def around(scene: Scene) -> AbstractContextManager[None]:
        def how(_number: int) -> Tampering:
            return Tampering(
                told=_rule(scene, (b"WAKE ", b"TIME "), told),
                said=_rule(scene, (b"AWAKE ",), said),
            )

        return tampering(scene, how)

    return around


def _rule(
    scene: Scene,
    verbs: tuple[bytes, ...],
    change: Callable[[Scene, bytes], bytes | None] | None,
) -> Rule:
    def rule(line: bytes) -> bytes | None:
        if change is None or not line.startswith(verbs):
            return line
        scene.note("tampered")
        return change(scene, line)

    return rule


def _never_woken(_: Scene, line: bytes) -> bytes | None:
    return None if line.startswith(b"WAKE ") else line


def _without_entropy(_: Scene, line: bytes) -> bytes:
    """The guest then has nothing to reseed by, and says so."""
    return b" ".join(word for word in line.split(b" ") if not word.startswith(b"entropy="))


def _late_clock(_: Scene, line: bytes) -> bytes:
    """The guest sets its clock to what it is told."""
    told_ns = int(field(line, "time_ns"))
    return with_field(line, "time_ns", str(told_ns - _CLOCK_OFF_NS).encode())


def _other_nonce(_: Scene, line: bytes) -> bytes:
    return with_field(line, "nonce", _OTHER_NONCE)


def _other_boot(_: Scene, line: bytes) -> bytes:
    return with_field(line, "boot_id", _OTHER_BOOT)


def _same_sample(scene: Scene) -> AbstractContextManager[None]:
    """The second fork shows the first one's sample, once the first has passed its barrier with it."""

    def how(number: int) -> Tampering:
        return Tampering(said=_rule(scene, (b"AWAKE ",), _second) if number else _first(scene))

    return tampering(scene, how)


def _first(scene: Scene) -> Rule:
    def rule(line: bytes) -> bytes:
        if line.startswith(b"AWAKE "):
            scene.note("sample", field(line, "sample"))
        return line

    return rule


def _second(scene: Scene, line: bytes) -> bytes:
    def passed() -> bool:
        known = scene.run_id and "sample" in scene.notes
        return bool(known) and scene.fork(0)["state"] not in ("queued", "restoring")

    scene.until(passed, "the first fork behind its barrier", _BARRIER_S)
    return with_field(line, "sample", scene.notes["sample"])


def _with_garbage(scene: Scene) -> AbstractContextManager[None]:
    """Between the guest's own lines come lines that no guest of ours says: too long, broken, of nobody's command."""

    def how(_number: int) -> Tampering:
        def said(line: bytes) -> bytes:
            scene.note("tampered")
            return b"\n".join((*([_GARBAGE] * _GARBAGE_TIMES), line))

        return Tampering(said=said)

    return tampering(scene, how)


def _probe(name: str, seen: str) -> tuple[Fact, ...]:
    return equals("probe", name), says("seen", seen)


CASES = (
    Case(
        name="barrier-unanswered",
        shows="the line that wakes a fork never reaches it",
        expect=breaks("barrier_failed", "barrier", there("timeout_s"), task_may_have_caused=False),
        around=_on_the_wire(told=_never_woken),
        cause=met,
    ),
    Case(
        name="barrier-wrong-nonce",
        shows="the guest answers with another fork's nonce",
        expect=breaks(
            "barrier_failed", "barrier", equals("nonce", _OTHER_NONCE.decode()), retryable=True
        ),
        around=_on_the_wire(said=_other_nonce),
        cause=met,
        quick=True,
    ),
    Case(
        name="barrier-not-reseeded",
        shows="the guest is sent no entropy, and its kernel's generator is not reseeded",
        expect=breaks("barrier_failed", "barrier", *_probe("entropy", "reseeded False")),
        around=_on_the_wire(told=_without_entropy),
        cause=met,
        quick=True,
    ),
    Case(
        name="barrier-duplicate-sample",
        shows="two forks of a run show the same bytes of randomness",
        expect=(passes(), breaks("barrier_failed", "barrier", there("sample"))),
        around=_same_sample,
        cause=met,
        quick=True,
    ),
    Case(
        name="contract-clock",
        shows="the guest's clock is a minute late",
        expect=breaks("contract_broken", "barrier", *_probe("clock", "ms from the host's")),
        around=_on_the_wire(told=_late_clock),
        cause=met,
        quick=True,
    ),
    Case(
        name="contract-booted",
        shows="the guest's boot id is not its snapshot's: it was booted, not restored",
        expect=breaks("contract_broken", "barrier", *_probe("warm", _OTHER_BOOT.decode())),
        around=_on_the_wire(said=_other_boot),
        cause=met,
        quick=True,
    ),
    Case(
        name="contract-siblings-marker",
        shows="a sibling's marker lies on the fork's disk",
        expect=breaks("contract_broken", "contract", *_probe("disk", "foreign markers sibling")),
        hook="touch /.promigence-marker-sibling",
        quick=True,
    ),
    Case(
        name="control-port-garbage",
        shows="4 MiB of garbage come between every two lines of the control port",
        command="sleep 1; echo fine; exit 4",
        expect=fails(4, output="fine"),
        around=_with_garbage,
        cause=met,
        quick=True,
    ),
)
