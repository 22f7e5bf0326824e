"""What EC2 answers, as our nouns; an answer that makes no sense is refused, not guessed at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from app.domain.cloud import (
    Attachment,
    AttachmentState,
    CloudSnapshot,
    SnapshotState,
    Volume,
    VolumeState,
)
from app.errors import CloudRefused

if TYPE_CHECKING:
    from datetime import datetime

    from types_boto3_ec2.type_defs import (
        SnapshotResponseTypeDef,
        SnapshotTypeDef,
        TagTypeDef,
        VolumeAttachmentTypeDef,
        VolumeResponseTypeDef,
        VolumeTypeDef,
    )

# The short form is of before 2016.
_ID = r"-(?:[0-9a-f]{8}|[0-9a-f]{17})"
_SECOND_NS = 1_000_000_000

Word = TypeVar("Word", bound=StrEnum)


def volume(shown: VolumeTypeDef | VolumeResponseTypeDef) -> Volume:
    """Raises CloudRefused(refused) where the answer is not to be understood."""
    return Volume(
        volume_id=_id("vol", shown.get("VolumeId")),
        state=_word(VolumeState, shown.get("State")),
        zone=shown.get("AvailabilityZone", ""),
        size_gib=shown.get("Size", 0),
        snapshot_id=shown.get("SnapshotId") or None,
        attachment=_attachment(shown.get("Attachments", ())),
        tags=_tags(shown.get("Tags", ())),
        made_wall_ns=_wall_ns(shown.get("CreateTime")),
    )


def snapshot(shown: SnapshotTypeDef | SnapshotResponseTypeDef) -> CloudSnapshot:
    """Raises CloudRefused(refused) where the answer is not to be understood."""
    return CloudSnapshot(
        snapshot_id=_id("snap", shown.get("SnapshotId")),
        state=_word(SnapshotState, shown.get("State")),
        size_gib=shown.get("VolumeSize", 0),
        volume_id=shown.get("VolumeId", ""),
        owner_id=shown.get("OwnerId", ""),
        progress_percent=_percent(shown.get("Progress", "")),
        message=shown.get("StateMessage", ""),
        tags=_tags(shown.get("Tags", ())),
        made_wall_ns=_wall_ns(shown.get("StartTime")),
    )


def _attachment(shown: Iterable[VolumeAttachmentTypeDef]) -> Attachment | None:
    """The one there is: none of our volumes is of the kind that may have several."""
    for one in shown:
        if one.get("State") != "detached":
            return Attachment(
                instance_id=_id("i", one.get("InstanceId")),
                device=one.get("Device", ""),
                state=_word(AttachmentState, one.get("State")),
                bound=one.get("DeleteOnTermination", False),
            )
    return None


def _id(kind: str, text: str | None) -> str:
    if text is None or re.fullmatch(kind + _ID, text) is None:
        raise CloudRefused(
            "refused", f"the cloud answered with no id of the kind {kind}: {text!r:.60}"
        )
    return text


def _word(words: type[Word], text: str | None) -> Word:
    try:
        return words(text or "")
    except ValueError as error:
        raise CloudRefused(
            "refused", f"the cloud answered with no {words.__name__}: {text!r:.60}"
        ) from error


def _tags(shown: Iterable[TagTypeDef]) -> Mapping[str, str]:
    return {tag.get("Key", ""): tag.get("Value", "") for tag in shown}


def _percent(text: str) -> int:
    """`"42%"`; nothing of it while a snapshot is young."""
    digits = text.removesuffix("%")
    return min(int(digits), 100) if digits.isascii() and digits.isdigit() else 0


def _wall_ns(moment: datetime | None) -> int:
    return int(moment.timestamp() * _SECOND_NS) if moment is not None else 0
