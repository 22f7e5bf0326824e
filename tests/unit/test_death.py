"""What a machine's death is called: by what its keeper, its monitor and the kernel saw, never by what was met first."""

from __future__ import annotations

import pytest

from app.domain.death import fault_of
from app.domain.machine import Death, DeathCause
from app.errors import EnvironmentFault, FailureKind

LOST = EnvironmentFault(FailureKind.GUEST_LOST, "its control port is closed", name="m1")
HUNG = EnvironmentFault(FailureKind.GUEST_HUNG, "it did not answer STATUS within 10.0 s")


def death(cause: DeathCause, signal: int | None = None, seen: str = "") -> Death:
    return Death(cause, None, signal, 7, seen=seen)


@pytest.mark.parametrize(
    ("met", "cause", "kind"),
    [
        (LOST, DeathCause.SIGNAL, FailureKind.GUEST_LOST),
        (LOST, DeathCause.EXIT, FailureKind.GUEST_LOST),
        (LOST, DeathCause.SHUTDOWN, FailureKind.GUEST_LOST),
        (LOST, DeathCause.KEEPER_LOST, FailureKind.GUEST_LOST),
        (LOST, DeathCause.PANICKED, FailureKind.GUEST_PANICKED),
        (LOST, DeathCause.OUT_OF_MEMORY, FailureKind.HOST_OUT_OF_MEMORY),
        (HUNG, DeathCause.ASKED, FailureKind.GUEST_HUNG),
        (LOST, DeathCause.DEADLINE, FailureKind.WORKER_LOST),
        (HUNG, DeathCause.DEADLINE, FailureKind.GUEST_HUNG),
        (HUNG, DeathCause.PANICKED, FailureKind.GUEST_PANICKED),
    ],
)
def test_a_death_has_its_own_name(
    met: EnvironmentFault, cause: DeathCause, kind: FailureKind
) -> None:
    fault = fault_of(met, death(cause))
    assert fault.kind is kind
    assert fault.evidence["death_cause"] == cause.value
    assert fault.evidence["met"] == met.message


@pytest.mark.parametrize(
    ("cause", "signal", "told"),
    [
        (DeathCause.SIGNAL, 9, True),
        (DeathCause.KEEPER_LOST, None, True),
        (DeathCause.SIGNAL, 11, None),  # a guest may crash its hypervisor
        (DeathCause.SIGNAL, 6, None),
        (DeathCause.EXIT, None, None),
        (DeathCause.PANICKED, None, None),
    ],
)
def test_what_nobody_inside_can_do_is_told(
    cause: DeathCause, signal: int | None, told: bool | None
) -> None:
    fault = fault_of(LOST, death(cause, signal))
    assert fault.evidence.get("killed_from_outside") is told


def test_every_cause_has_a_name() -> None:
    assert all(fault_of(LOST, death(cause)) for cause in DeathCause)


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("System is deadlocked on memory", FailureKind.GUEST_OUT_OF_MEMORY),
        ("Out of memory: system-wide panic_on_oom is enabled", FailureKind.GUEST_OUT_OF_MEMORY),
        ("sysrq triggered crash", FailureKind.GUEST_PANICKED),
    ],
)
def test_a_panic_is_named_by_the_kernels_own_sentence(sentence: str, kind: FailureKind) -> None:
    console = (
        f"[1.0] Out of memory: Killed process 9\n[2.0] Kernel panic - not syncing: {sentence}\nend"
    )
    fault = fault_of(LOST, death(DeathCause.PANICKED), console)
    assert fault.kind is kind
    assert fault.evidence["panic"] == f"Kernel panic - not syncing: {sentence}"


def test_a_sentence_on_the_console_alone_is_no_panic() -> None:
    """Whoever is root in the guest can write there."""
    console = "Kernel panic - not syncing: System is deadlocked on memory\n"
    fault = fault_of(LOST, death(DeathCause.SIGNAL, 9), console)
    assert fault.kind is FailureKind.GUEST_LOST
    assert "panic" not in fault.evidence


def test_what_the_process_said_last_is_told() -> None:
    fault = fault_of(LOST, death(DeathCause.EXIT, seen="qemu: cannot go on"))
    assert fault.evidence["process_said"] == "qemu: cannot go on"
