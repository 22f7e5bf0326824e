"""The fork contract: what was probed, what was seen, and whether that is sound.

Checked on every fork before it is handed over, whatever the user's own test says.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.machine import Awake, Identity, Probe
from app.errors import EnvironmentFault, FailureKind

CLOCK_TOLERANCE_NS = 2_000_000_000
# Probes without which a fork is not apart from its siblings: then the barrier itself has failed.
BARRIER = frozenset({"barrier", "entropy"})


@dataclass(frozen=True, slots=True)
class Check:
    """One probe of one fork. `seen` is the evidence, in words."""

    name: str
    sound: bool
    seen: str
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """The JSON shape of the contract."""
        return {"name": self.name, "sound": self.sound, "seen": self.seen, "seconds": self.seconds}


def at_barrier(
    awake: Awake, told: Identity, snapshot_boot_id: str, seconds: float
) -> tuple[Check, ...]:
    """The five probes that the guest answers on the control port, in one line."""
    drift_ns = awake.guest_wall_ns - awake.host_wall_ns
    own = awake.hostname == told.hostname and awake.machine_id == told.machine_id
    return (
        Check("barrier", awake.nonce == told.nonce, f"nonce {awake.nonce}", seconds),
        Check("warm", awake.boot_id == snapshot_boot_id, f"boot_id {awake.boot_id}", seconds),
        Check(
            "entropy",
            awake.reseeded and _is_sample(awake.sample),
            f"sample {awake.sample}, reseeded {awake.reseeded}",
            seconds,
        ),
        Check(
            "clock",
            abs(drift_ns) <= CLOCK_TOLERANCE_NS,
            f"{drift_ns / 1e6:.1f} ms from the host's",
            seconds,
        ),
        Check(
            "identity",
            own and awake.host_key_sound,
            f"hostname {awake.hostname}, machine-id {awake.machine_id}, "
            f"host key {'own' if awake.host_key_sound else 'not replaced'}",
            seconds,
        ),
    )


def on_channel(
    probe: Probe, marker: str, disk_id: str, allowed: tuple[str, ...], seconds: float
) -> tuple[Check, ...]:
    """The probes that need the command channel: disk, channel and egress."""
    disk_sound = probe.disk_id == disk_id and probe.marker == marker and not probe.foreign_markers
    closed = probe.interfaces == ("lo",) and not probe.refused_target_reached
    foreign = ", ".join(probe.foreign_markers) or "none"
    return (
        Check(
            "disk",
            disk_sound,
            f"id {probe.disk_id}, marker {probe.marker}, foreign markers {foreign}",
            seconds,
        ),
        Check(
            "channel", probe.exit_code == marker_exit(marker), f"exit {probe.exit_code}", seconds
        ),
        Check(
            "egress",
            closed,
            f"interfaces {', '.join(probe.interfaces) or 'none'}; a target that is not allowed was "
            f"{'reached' if probe.refused_target_reached else 'refused'}; "
            f"allowed: {', '.join(allowed) or 'nothing'}",
            seconds,
        ),
    )


def marker_exit(marker: str) -> int:
    """The exit code that the probe is asked to end with: a fork's own, so that none can be stale."""
    return 1 + int(marker[:8], 16) % 120


def unsound(checks: tuple[Check, ...]) -> Check | None:
    """The first probe that does not hold."""
    return next((check for check in checks if not check.sound), None)


def refuse_unsound(checks: tuple[Check, ...]) -> None:
    """Raises EnvironmentFault with what the first unsound probe saw: contract_broken, or barrier_failed where the
    barrier was not passed or nothing was reseeded.
    """
    broken = unsound(checks)
    if broken is None:
        return
    kind = FailureKind.BARRIER_FAILED if broken.name in BARRIER else FailureKind.CONTRACT_BROKEN
    raise EnvironmentFault(
        kind,
        f"the {broken.name} probe does not hold: {broken.seen}",
        probe=broken.name,
        seen=broken.seen,
    )


def _is_sample(sample: str) -> bool:
    return len(sample) == 32 and len(set(sample)) > 1
