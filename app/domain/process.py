"""A process of the control plane, as others see it: which release it is of, and whether it lives."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.money import NS_PER_SECOND

# One that is silent for longer is taken for ended.
SILENT_NS = 30 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class ControlProcess:
    """`component`: api or billing. `release` is the version of its code, `revision` the last change of the schema that
    this code knows. `heartbeat_age_ns` is by the database's clock.
    """

    process_id: str
    component: str
    machine: str
    pid: int
    release: str
    revision: str
    heartbeat_age_ns: int = 0

    @property
    def is_silent(self) -> bool:
        return self.heartbeat_age_ns > SILENT_NS

    def __str__(self) -> str:
        return f"{self.component} (process {self.pid} on {self.machine}, release {self.release})"
