"""The fork contract's probe over the SSH channel: its lines, read as hostile."""

from __future__ import annotations

from app.domain.machine import Probe
from app.errors import EnvironmentFault, FailureKind
from infra.guest.ssh import PROXY_PORT, SshChannel

_OUTPUT_LIMIT = 16384
_VALUE_LIMIT = 128


def run(channel: SshChannel, marker: str, exit_code: int, proxied: bool, timeout_s: float) -> Probe:
    """Run it and read what it saw. Raises EnvironmentFault(contract_broken) if it could not be run."""
    said = bytearray()

    def keep(data: bytes) -> None:
        said.extend(data[: _OUTPUT_LIMIT - len(said)])

    port = f" {PROXY_PORT}" if proxied else ""
    finished = channel.run(
        f":probe {marker} {exit_code}{port}", sink=keep, silence_s=timeout_s, within_s=timeout_s
    )
    seen = parse(said.decode("ascii", "replace"), finished.exit_code)
    if seen is None:
        raise EnvironmentFault(
            FailureKind.CONTRACT_BROKEN,
            f"the probe did not run: {finished.message or 'it said nothing sound'}",
            exit_code=finished.exit_code,
        )
    return seen


def parse(text: str, exit_code: int) -> Probe | None:
    """The probe's key=value lines; None if one of those that must be there is not."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            values.setdefault(key, []).append(value[:_VALUE_LIMIT])
    if not all(len(values.get(key, ())) == 1 for key in ("disk_id", "marker", "reached")):
        return None
    return Probe(
        exit_code=exit_code,
        disk_id=values["disk_id"][0],
        marker=values["marker"][0],
        foreign_markers=tuple(values.get("foreign_marker", ())),
        interfaces=tuple(values.get("interface", ())),
        refused_target_reached=values["reached"][0] != "0",
    )
