"""Volumes and snapshots of the cloud account: as the cloud shows them, and as we wrote them down before we asked for
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# What every resource of ours carries. The deployment says whose it is, the token which row made it, the deadline until
# when it may be without an owner.
TAG_DEPLOYMENT = "promigence:deployment"
TAG_TOKEN = "promigence:token"  # noqa: S105 - a name, no secret
TAG_BUNDLE = "promigence:bundle"
TAG_OWNER = "promigence:owner"
TAG_DEADLINE = "promigence:deadline"


class ResourceKind(StrEnum):
    VOLUME = "volume"
    SNAPSHOT = "snapshot"


class Purpose(StrEnum):
    """What a resource is for; it says who owns it."""

    WRITE = "write"  # a volume on which a bundle is being stored: its host's, until the snapshot of it is complete
    READ = "read"  # a volume made from a snapshot, mounted on its host: the host's, as long as it lives
    KEEP = "keep"  # a snapshot: the stored bundle's, as long as that has a row or is being built


class VolumeState(StrEnum):
    CREATING = "creating"
    AVAILABLE = "available"
    IN_USE = "in-use"
    DELETING = "deleting"
    DELETED = "deleted"
    ERROR = "error"


class AttachmentState(StrEnum):
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    BUSY = "busy"


class SnapshotState(StrEnum):
    PENDING = "pending"
    COMPLETED = "completed"
    ERROR = "error"
    RECOVERING = "recovering"
    RECOVERABLE = "recoverable"


@dataclass(frozen=True, slots=True)
class Attachment:
    """Where a volume is, or is on its way to or from. `device` is the name asked for, which Nitro does not keep.

    `bound`: the cloud deletes the volume when that instance is terminated.
    """

    instance_id: str
    device: str
    state: AttachmentState
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume as the cloud shows it now; `made_wall_ns` is its clock."""

    volume_id: str
    state: VolumeState
    zone: str
    size_gib: int
    snapshot_id: str | None = None
    attachment: Attachment | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    made_wall_ns: int = 0


@dataclass(frozen=True, slots=True)
class CloudSnapshot:
    """A snapshot as the cloud shows it now. `message` is the cloud's own word where it failed."""

    snapshot_id: str
    state: SnapshotState
    size_gib: int
    volume_id: str = ""
    owner_id: str = ""
    progress_percent: int = 0
    message: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    made_wall_ns: int = 0


@dataclass(frozen=True, slots=True)
class Resource:
    """Our row of a volume or snapshot, written before the cloud is asked for it.

    `token` is the client token and a tag of the resource, so that one whose id was never heard is found again.
    `cloud_id` None: the cloud has not answered yet. `zone` and `host_id` are a volume's. `*_ns` are the
    database's clock.
    `deadline_ns` is until when it may be unfinished; None: as long as its owner lives.
    """

    token: str
    kind: ResourceKind
    purpose: Purpose
    bundle_id: str
    size_gib: int
    host_id: str | None = None
    zone: str | None = None
    cloud_id: str | None = None
    intended_ns: int = 0
    deadline_ns: int | None = None
    made_ns: int | None = None
    gone_ns: int | None = None
