"""Snapshots and the builds that make them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.api.schemas.base import (
    Answer,
    Body,
    EgressTarget,
    GuestPath,
    Instant,
    Name,
    Sha256,
    Text,
    Usd,
)
from app.api.schemas.command import MAX_COMMAND_BYTES, OwnTest
from app.api.schemas.run import Check
from app.domain.machine import Shape
from app.domain.money import micros_of_usd
from app.domain.run import ExecSpec
from app.domain.snapshot import (
    ON_FORK_TIMEOUT_NS,
    SETUP_TIMEOUT_NS,
    WARM_TIMEOUT_NS,
    Definition,
    Upload,
)

MAX_WARM_HOSTS = 1000

Targets = Annotated[list[EgressTarget], Field(max_length=64)]
Step = Annotated[Text, Field(min_length=1, max_length=MAX_COMMAND_BYTES)]
Steps = Annotated[list[Step], Field(max_length=100)]


class ShapeBody(Body):
    """What one fork reserves; held against the operator's limits by the route."""

    vcpus: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_mib: Annotated[int, Field(ge=64, le=16_777_216)] = 512
    disk_gib: Annotated[int, Field(ge=1, le=65_536)] = 4


class DefinitionBody(Body):
    """A snapshot's definition without `files`: local paths mean nothing here."""

    name: Name
    image: Annotated[Text, Field(min_length=1, max_length=255)]
    shape: ShapeBody = ShapeBody()
    setup: Steps = Field(default_factory=list)
    warm: Steps = Field(default_factory=list)
    on_fork: Steps = Field(default_factory=list)
    test: OwnTest
    build_egress: Targets = Field(default_factory=list)
    egress: Targets = Field(default_factory=list)
    spend_cap: Usd = 0.5


class UploadBody(Body):
    """A tar among the uploaded files, unpacked under `guest_path` before set-up."""

    guest_path: GuestPath
    sha256: Sha256


class BuildBody(Body):
    definition: DefinitionBody
    files: Annotated[list[UploadBody], Field(max_length=256)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _each_file_once(self) -> Self:
        if len({(file.guest_path, file.sha256) for file in self.files}) < len(self.files):
            raise ValueError("files names one upload twice for one place")
        return self

    def to_definition(self) -> Definition:
        said = self.definition
        return Definition(
            name=said.name,
            image=said.image,
            shape=Shape(said.shape.vcpus, said.shape.memory_mib, said.shape.disk_gib),
            test=said.test.to_spec(),
            repeat=said.test.repeat,
            files=tuple(Upload(file.guest_path, file.sha256) for file in self.files),
            setup=_shell(said.setup, SETUP_TIMEOUT_NS),
            warm=_shell(said.warm, WARM_TIMEOUT_NS),
            on_fork=_shell(said.on_fork, ON_FORK_TIMEOUT_NS),
            build_egress=tuple(said.build_egress),
            egress=tuple(said.egress),
            cap_micros=micros_of_usd("spend_cap", said.spend_cap),
        )


class RebuildBody(Body):
    """`spend_cap` in the place of the definition's own."""

    spend_cap: Usd | None = None

    @property
    def cap_micros(self) -> int | None:
        return None if self.spend_cap is None else micros_of_usd("spend_cap", self.spend_cap)


class WarmBody(Body):
    hosts: Annotated[int, Field(ge=1, le=MAX_WARM_HOSTS)]


def _shell(steps: list[str], timeout_ns: int) -> tuple[ExecSpec, ...]:
    return tuple(ExecSpec(("/bin/sh", "-c", step), timeout_ns=timeout_ns) for step in steps)


class LogLine(Answer):
    n: int
    step: str
    text: str


class BuildError(Answer):
    """Why a build gave no snapshot: as every error, without a request."""

    code: str
    message: str
    retryable: bool
    details: dict[str, Any]


class Build(Answer):
    build_id: str
    name: str
    state: Literal["queued", "building", "verifying", "verified", "refused", "failed", "cancelled"]
    step: str | None
    log: list[LogLine]
    snapshot: str | None
    rebuilds: str | None
    error: BuildError | None
    cost_usd: float


class ShapeAnswer(Answer):
    vcpus: int
    memory_mib: int
    disk_gib: int


class Restore(Answer):
    """Where a version can be restored now: `serving` are the hosts that have its key, `able` those of them that have
    its bundle or can fetch it. `why` says what keeps it from that, or soon will.
    """

    needs: str
    keys: list[str]
    serving: list[str]
    able: list[str]
    why: str | None


class StoredBundle(Answer):
    """A copy: a snapshot of the cloud account, or a host's own. `since` is null where that is not known; `mounted`: the
    host's forks need wait for nothing.
    """

    where: Literal["cloud", "host"]
    id: str
    region: str | None
    bytes: int
    since: Instant | None
    mounted: bool


class UnfitHost(Answer):
    host: str
    reason: str


class Warm(Answer):
    """How a warm target is met: `warm_on` have it mounted, `coming_on` are to; `missing` more hosts are wanted than
    could have it.
    """

    hosts: int
    snapshot: str
    follows_name: bool
    met: bool
    warm_on: list[str]
    coming_on: list[str]
    missing: int
    unfit: list[UnfitHost]


class Snapshot(Answer):
    """One immutable version; `stale` when no host that is up can restore it, `unreachable` when those that could have
    not got it.
    """

    snapshot: str
    name: str
    version: int
    latest: bool
    state: Literal["verified", "stale", "unreachable"]
    restore: Restore
    image: str
    shape: ShapeAnswer
    egress: list[str]
    restore_key: str
    accelerator: Literal["kvm", "tcg"]
    created_at: Instant
    bytes: int
    bundles: list[StoredBundle]
    warm: Warm | None
    checks: list[Check]
    provenance: dict[str, Any]


class Snapshots(Answer):
    snapshots: list[Snapshot]
    next_cursor: str | None


class Deleted(Answer):
    deleted: list[str]


class FileKept(Answer):
    sha256: str
    bytes: int
