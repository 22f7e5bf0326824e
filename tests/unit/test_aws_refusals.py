"""What AWS says no with, in our words: the codes and messages are AWS's own."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

import app.errors
from app.errors import CloudRefused, Unavailable
from infra.aws.refusals import CODES, MESSAGE_CHARS, RULES, THROTTLES, meaning, translated

VOLUME, INSTANCE, SNAPSHOT = (
    "vol-0123456789abcdef0",
    "i-0123456789abcdef0",
    "snap-0123456789abcdef0",
)
NOT_ALLOWED = (
    "You are not authorized to perform this operation. User: arn:aws:sts::111122223333:assumed-role/host/i-1 is not "
    "authorized to perform: {} on resource: {} because no identity-based policy allows the {} action."
)


@pytest.mark.parametrize(
    ("operation", "code", "message", "ours"),
    [
        (
            "CreateVolume",
            "InvalidSnapshot.NotFound",
            f"The snapshot '{SNAPSHOT}' does not exist.",
            "snapshot_gone",
        ),
        ("CreateVolume", "InvalidSnapshotID.Malformed", "Invalid id: \"snap-x\"", "snapshot_gone"),
        (
            "CreateVolume",
            "IncorrectState",
            "Snapshot is in invalid state - pending",
            "snapshot_not_ready",
        ),
        (
            "CreateVolume",
            "UnauthorizedOperation",
            NOT_ALLOWED.format(
                "ec2:CreateVolume", f"arn:aws:ec2:eu-west-1::snapshot/{SNAPSHOT}", "ec2:CreateVolume"
            ),
            "snapshot_denied",
        ),
        (
            "CreateVolume",
            "UnauthorizedOperation",
            NOT_ALLOWED.format(
                "ec2:CreateVolume", "arn:aws:ec2:eu-west-1:111122223333:volume/*", "ec2:CreateVolume"
            ),
            "denied",
        ),
        ("CreateVolume", "AuthFailure", f"Not authorized for {SNAPSHOT}", "snapshot_denied"),
        ("CreateVolume", "AuthFailure", "AWS was not able to validate the credentials", "denied"),
        (
            "CreateVolume",
            "UnauthorizedOperation",
            NOT_ALLOWED.format(
                "kms:CreateGrant", "arn:aws:kms:eu-west-1:111122223333:key/1", "kms:CreateGrant"
            ),
            "key_denied",
        ),
        ("CreateVolume", "InvalidKMSKey.InvalidState", "The KMS key is disabled", "key_denied"),
        ("CreateVolume", "KMSKeyNotAccessibleFault", "The key is not accessible", "key_denied"),
        ("CreateVolume", "KMS.DisabledException", "arn:aws:kms:... is disabled.", "key_denied"),
        (
            "CreateVolume",
            "InvalidParameterValue",
            f"Volume of 1GiB is smaller than snapshot '{SNAPSHOT}', expect size >= 8GiB",
            "too_small",
        ),
        (
            "CreateVolume",
            "InvalidParameterValue",
            "Volume of size 15GB is smaller than  snapshot 'snap-1', expect size >= 30GB",
            "too_small",
        ),
        ("CreateVolume", "InvalidZone.NotFound", "The zone 'x' does not exist.", "wrong_zone"),
        (
            "CreateVolume",
            "InvalidParameterValue",
            "Invalid availability zone: [us-east-1z]",
            "wrong_zone",
        ),
        ("CreateVolume", "VolumeLimitExceeded", "You have exceeded your limit", "limit_exceeded"),
        ("CreateVolume", "InsufficientVolumeCapacity", "Not enough capacity", "limit_exceeded"),
        (
            "CreateVolume",
            "IdempotentParameterMismatch",
            "The client token has been used for a different request",
            "refused",
        ),
        ("CreateVolume", "InvalidParameterValue", "Invalid volume type: gp9", "refused"),
        ("CreateSnapshot", "InvalidVolume.NotFound", f"The volume '{VOLUME}' does not exist.", "volume_gone"),
        ("CreateSnapshot", "SnapshotLimitExceeded", "", "limit_exceeded"),
        ("CreateSnapshot", "ConcurrentSnapshotLimitExceeded", "", "limit_exceeded"),
        ("CreateSnapshot", "IncorrectState", f"The volume '{VOLUME}' is 'creating'", "not_ready"),
        (
            "AttachVolume",
            "VolumeInUse",
            f"{VOLUME} is already attached to an instance",
            "attached_elsewhere",
        ),
        (
            "AttachVolume",
            "InvalidParameterValue",
            "Invalid value '/dev/sdf' for unixDevice. Attachment point /dev/sdf is already in use",
            "device_taken",
        ),
        (
            "AttachVolume",
            "InvalidParameterValue",
            "Value (/dev/sdk1) for parameter device is invalid. /dev/sdk1 is not a valid EBS device name.",
            "refused",
        ),
        (
            "AttachVolume",
            "InvalidVolume.ZoneMismatch",
            f"The volume '{VOLUME}' is not in the same availability zone as instance '{INSTANCE}'",
            "wrong_zone",
        ),
        ("AttachVolume", "IncorrectState", f"{VOLUME} is not 'available'.", "not_ready"),
        ("AttachVolume", "IncorrectInstanceState", f"'{INSTANCE}' is not 'running'.", "not_ready"),
        ("AttachVolume", "AttachmentLimitExceeded", "Volume attachment limit", "limit_exceeded"),
        ("AttachVolume", "InvalidInstanceID.NotFound", f"'{INSTANCE}' does not exist", "refused"),
        ("DetachVolume", "IncorrectState", f"Volume '{VOLUME}' is in the 'available' state.", "not_ready"),
        ("DeleteVolume", "VolumeInUse", f"Volume {VOLUME} is currently attached", "in_use"),
        ("DeleteSnapshot", "InvalidSnapshot.InUse", f"{SNAPSHOT} is in use by ami-1", "in_use"),
        ("DescribeVolumes", "ExpiredToken", "The security token is expired", "denied"),
        ("DescribeVolumes", "OptInRequired", "You are not subscribed to this service", "denied"),
        ("DescribeVolumes", "SomethingNewIn2027", "who knows", "refused"),
        ("DescribeVolumes", "", "", "refused"),
    ],
)  # fmt: skip
def test_a_refusal_has_our_code_and_keeps_their_words(
    operation: str, code: str, message: str, ours: str
) -> None:
    assert meaning(code, operation, message) == ours
    with pytest.raises(CloudRefused) as caught, translated(volume_id=VOLUME):
        raise refusal(code, operation, message)
    assert caught.value.code == ours
    assert caught.value.details == {
        "operation": operation,
        "aws_code": code,
        "aws_message": message,
        "request_id": "req-1",
        "volume_id": VOLUME,
    }
    assert isinstance(caught.value.__cause__, ClientError)


def test_every_word_of_ours_is_one_that_the_error_promises() -> None:
    told = {ours for *_, ours in RULES} | set(CODES.values()) | {"refused"}
    promised = app.errors.CloudRefused.__doc__ or ""
    assert {word for word in told if f"`{word}`" not in promised} == set()


@pytest.mark.parametrize("code", sorted(THROTTLES))
def test_who_asks_too_often_is_told_to_come_again(code: str) -> None:
    with pytest.raises(Unavailable) as caught, translated():
        raise refusal(code, "AttachVolume", "slow down")
    assert (caught.value.code, caught.value.details["throttled"]) == ("cloud_away", True)


@pytest.mark.parametrize("code", ["InternalError", "Unavailable", "VolumeInUse"])
def test_what_aws_fails_at_itself_is_no_refusal(code: str) -> None:
    with pytest.raises(Unavailable) as caught, translated():
        raise refusal(code, "AttachVolume", "an internal error", status=503)
    assert (caught.value.code, caught.value.details["throttled"]) == ("cloud_away", False)
    assert caught.value.details["request_id"] == "req-1"


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="https://ec2"),
        ConnectTimeoutError(endpoint_url="https://ec2"),
        ReadTimeoutError(endpoint_url="https://ec2"),
        ResponseParserError("<html>"),
        BotoCoreError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_who_does_not_answer_is_away(error: Exception) -> None:
    with pytest.raises(Unavailable) as caught, translated(token="tok_1"):
        raise error
    assert caught.value.code == "cloud_away"
    assert caught.value.details == {"error": type(error).__name__, "token": "tok_1"}
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (NoCredentialsError(), "denied"),
        (ParamValidationError(report="Size: no number"), "refused"),
    ],
)
def test_what_is_wrong_on_our_side_is_not_tried_again(error: Exception, ours: str) -> None:
    with pytest.raises(CloudRefused) as caught, translated():
        raise error
    assert caught.value.code == ours
    assert not caught.value.retryable


def test_an_error_of_our_own_passes() -> None:
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError


def test_nobody_reads_who_asked_and_pages_of_it() -> None:
    message = "You may not. Encoded authorization failure message: " + "x" * 9000
    with pytest.raises(CloudRefused) as caught, translated():
        raise refusal("UnauthorizedOperation", "CreateVolume", message)
    assert caught.value.details["aws_message"] == "You may not."
    with pytest.raises(CloudRefused) as caught, translated():
        raise refusal("Odd", "CreateVolume", "y" * 9000)
    assert caught.value.details["aws_message"] == "y" * MESSAGE_CHARS


def refusal(code: str, operation: str, message: str, status: int = 400) -> ClientError:
    """As botocore makes it of an answer."""
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"RequestId": "req-1", "HTTPStatusCode": status},
    }
    return ClientError(answer, operation)
