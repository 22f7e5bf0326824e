"""What a snapshot is, where it came from, and what a restore of it needs; and a build on its way to one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.machine import RestoreKey, Shape
from app.domain.money import NS_PER_SECOND
from app.domain.run import ExecSpec

SETUP_TIMEOUT_NS = 1800 * NS_PER_SECOND
WARM_TIMEOUT_NS = 300 * NS_PER_SECOND
ON_FORK_TIMEOUT_NS = 30 * NS_PER_SECOND
TEMPLATE_ALLOWANCE_NS = 180 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Upload:
    """A tar in the blobs, unpacked under `guest_path` before set-up."""

    guest_path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A snapshot as its author wrote it; local paths have become uploads."""

    name: str
    image: str
    shape: Shape
    test: ExecSpec
    repeat: int = 3
    files: tuple[Upload, ...] = ()
    setup: tuple[ExecSpec, ...] = ()
    warm: tuple[ExecSpec, ...] = ()
    on_fork: tuple[ExecSpec, ...] = ()
    build_egress: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    cap_micros: int = 500_000

    @property
    def build_ns(self) -> int:
        """The longest that the template may live: its boot, uploads, every command's limit, the freeze."""
        commands = (*self.setup, *self.warm)
        return TEMPLATE_ALLOWANCE_NS + sum(spec.timeout_ns for spec in commands)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stored, verified version. It never changes; the name's newest version is what the bare name means."""

    snapshot_id: str
    project_id: str
    name: str
    version: int
    definition: Definition
    bundle_id: str
    restore_key: RestoreKey
    boot_id: str
    disk_id: str
    size_bytes: int
    evidence: dict[str, object] = field(default_factory=dict)
    provenance: dict[str, object] = field(default_factory=dict)
    created_ns: int = 0

    @property
    def ref(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a version was, of which another is made anew; `made_of` is empty where it was not kept yet."""

    ref: str
    restore_key: str
    made_of: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Origin:
        kept = snapshot.provenance.get("made_of")
        made_of = {str(part): str(content) for part, content in _pairs(kept)}
        return cls(snapshot.ref, str(snapshot.restore_key), made_of)

    def compared(self, restore_key: str, made_of: Mapping[str, str]) -> dict[str, object]:
        """For the provenance of what was made anew: this version, and what is not as it was.

        `was` is null for what was not kept of the older version.
        """
        now = {"restore_key": restore_key, **made_of}
        was = {"restore_key": self.restore_key, **self.made_of}
        differs = {
            part: {"was": was.get(part), "is": now.get(part)}
            for part in (*now, *(was.keys() - now.keys()))
            if was.get(part) != now.get(part)
        }
        return {"snapshot": self.ref, "differs": differs}


class BuildState(StrEnum):
    QUEUED = "queued"
    BUILDING = "building"
    VERIFYING = "verifying"
    VERIFIED = "verified"
    REFUSED = "refused"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self not in (BuildState.QUEUED, BuildState.BUILDING, BuildState.VERIFYING)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A frozen template that has not passed yet; staged on one host, forked only by its own build.

    `made_of` is its boot image's.
    """

    bundle_id: str
    restore_key: RestoreKey
    boot_id: str
    disk_id: str
    size_bytes: int
    host_id: str
    made_of: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuildError:
    """Why a build gave no snapshot: the check that refused it, its output, and how to see it by hand."""

    code: str
    message: str
    check: str
    output: str = ""
    reproduce: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    n: int
    step: str
    text: str


@dataclass(frozen=True, slots=True)
class Build:
    """A build's row. Its money and machines are those of its internal run; `origin` if it makes a version anew."""

    build_id: str
    project_id: str
    run_id: str
    definition: Definition
    state: BuildState
    step: str = ""
    candidate: Candidate | None = None
    snapshot_ref: str | None = None
    error: BuildError | None = None
    log: tuple[LogLine, ...] = ()
    created_ns: int = 0
    template_fork_id: str = ""
    origin: Origin | None = None


def split_ref(ref: str) -> tuple[str, int | None]:
    """`name` or `name@3` -> its parts; the version is None for the newest. Raises ValueError."""
    name, at, version = ref.partition("@")
    if not at:
        return name, None
    if not version.isdecimal() or int(version) < 1:
        raise ValueError(f"{ref!r}: a version is a whole number from 1")
    return name, int(version)


def _pairs(kept: object) -> Iterable[tuple[object, object]]:
    return kept.items() if isinstance(kept, dict) else ()
