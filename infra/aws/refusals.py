"""What AWS says no with, in our words.

Codes and messages are those of "Error codes for the Amazon EC2 API"; where AWS has one code for several reasons, its
message tells them apart. What no rule knows is `refused`, with AWS's own words in `details`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.parsers import ResponseParserError

from app.errors import CloudRefused, Unavailable

MESSAGE_CHARS = 500

CODES = {
    "InvalidSnapshot.NotFound": "snapshot_gone",
    "InvalidSnapshotID.Malformed": "snapshot_gone",
    "InvalidSnapshot.InUse": "in_use",
    "InvalidVolume.NotFound": "volume_gone",
    "InvalidVolumeID.Malformed": "volume_gone",
    "InvalidVolume.ZoneMismatch": "wrong_zone",
    "InvalidVolumeID.ZoneMismatch": "wrong_zone",
    "InvalidZone.NotFound": "wrong_zone",
    "InvalidDevice.InUse": "device_taken",
    "IncorrectState": "not_ready",
    "IncorrectInstanceState": "not_ready",
    "InvalidAttachment.NotFound": "not_ready",
    "VolumeInUse": "in_use",
    "VolumeLimitExceeded": "limit_exceeded",
    "AttachmentLimitExceeded": "limit_exceeded",
    "SnapshotLimitExceeded": "limit_exceeded",
    "ConcurrentSnapshotLimitExceeded": "limit_exceeded",
    "ConcurrentVolumeInitializationRateLimitExceeded": "limit_exceeded",
    "MaxIOPSLimitExceeded": "limit_exceeded",
    "ResourceLimitExceeded": "limit_exceeded",
    "ResourceCountExceeded": "limit_exceeded",
    "InsufficientVolumeCapacity": "limit_exceeded",
    "UserQuotaExceeded": "limit_exceeded",
    "LimitExceededException": "limit_exceeded",
    "InvalidUserState": "not_ready",
    "InvalidUserGroupState": "not_ready",
    "KMSKeyNotAccessibleFault": "key_denied",
    "EncryptedVolumesNotSupported": "key_denied",
    "UnauthorizedOperation": "denied",
    "AuthFailure": "denied",
    "AccessDenied": "denied",
    "AccessDeniedException": "denied",
    "InvalidClientTokenId": "denied",
    "SignatureDoesNotMatch": "denied",
    "ExpiredToken": "denied",
    "RequestExpired": "denied",
    "OptInRequired": "denied",
    "PendingVerification": "denied",
    "Blocked": "denied",
}

# (AWS's code, operation, what its message says, ours): the first that fits, before `CODES`. "" stands for any.
RULES = (
    ("VolumeInUse", "AttachVolume", "", "attached_elsewhere"),
    ("IncorrectState", "CreateVolume", "", "snapshot_not_ready"),
    ("InvalidParameterValue", "AttachVolume", "already in use", "device_taken"),
    ("InvalidParameterValue", "CreateVolume", "smaller than +snapshot", "too_small"),
    ("InvalidParameterValue", "CreateVolume", "availability zone", "wrong_zone"),
    ("InvalidParameterValue", "", r"\bkms", "key_denied"),
    ("", "", r"^InvalidKMSKey|^KMS\.", "key_denied"),
    ("UnauthorizedOperation", "", r"\bkms:|\bkms key", "key_denied"),
    ("AccessDenied", "", r"\bkms:|\bkms key", "key_denied"),
    ("UnauthorizedOperation", "CreateVolume", "snapshot/snap-", "snapshot_denied"),
    ("AuthFailure", "CreateVolume", "snap-", "snapshot_denied"),
)

# Asked too often: botocore has tried again before.
THROTTLES = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "RequestThrottled",
        "EC2ThrottledException",
        "TooManyRequestsException",
        "SlowDown",
        "BandwidthLimitExceeded",
        # Two snapshots of one volume within 15 s.
        "SnapshotCreationPerVolumeRateExceeded",
    }
)


@contextmanager
def translated(**ids: object) -> Iterator[None]:
    """Inside, whatever AWS or the way to it raises becomes CloudRefused or Unavailable(cloud_away); `ids` are what the
    call was about, for `details`.
    """
    try:
        yield
    except ClientError as error:
        raise _told(error, ids) from error
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as error:
        raise CloudRefused(
            "denied", f"this host has no credentials of AWS: {error}", **ids
        ) from error
    except ParamValidationError as error:
        raise CloudRefused("refused", f"AWS takes no such request: {error}", **ids) from error
    except (BotoCoreError, ResponseParserError) as error:
        kind = type(error).__name__
        raise Unavailable(
            "cloud_away", f"AWS does not answer: {error}", error=kind, **ids
        ) from error


def meaning(code: str, operation: str, message: str) -> str:
    """Our code for one of AWS's."""
    for of_code, of_operation, pattern, ours in RULES:
        text = message if of_code else code
        if (
            of_code in ("", code)
            and of_operation in ("", operation)
            and re.search(pattern, text, re.IGNORECASE)
        ):
            return ours
    return CODES.get(code, "refused")


def _told(error: ClientError, ids: dict[str, object]) -> CloudRefused | Unavailable:
    told, about = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    code, message = told.get("Code", ""), _short(told.get("Message") or "")
    details: dict[str, object] = {
        "operation": error.operation_name,
        "aws_code": code,
        "aws_message": message,
        "request_id": str(about.get("RequestId", "")),
        **ids,
    }
    throttled = code in THROTTLES
    if throttled or about.get("HTTPStatusCode", 0) >= 500:
        text = f"AWS does not serve {error.operation_name} now: {code}"
        return Unavailable("cloud_away", text, throttled=throttled, **details)
    ours = meaning(code, error.operation_name, message)
    return CloudRefused(ours, f"AWS refused {error.operation_name}: {code}: {message}", **details)


def _short(message: str) -> str:
    """Without the encoded part, which says who asked and from where, and is of use to nobody who reads logs."""
    return message.partition("Encoded authorization failure message:")[0].strip()[:MESSAGE_CHARS]
