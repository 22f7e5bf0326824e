"""Every error that Promigence raises on purpose.

    PromigenceError
    ├── BadRequest            400  the caller's input is wrong; nothing was done
    ├── Unauthorized          401  no key, a wrong key, a revoked key
    ├── Forbidden             403  this key or this operator does not allow it
    ├── NotFound              404
    ├── Conflict              409  the thing exists and its state forbids this
    │   ├── SnapshotRefused        a snapshot that did not pass its own checks
    │   ├── NotYet                 it will allow it later: try again
    │   └── StaleClaim             a late result: another worker holds the claim now
    ├── TooLarge              413
    ├── RateLimited           429  too often, or too much at once: try again later; nothing was done
    ├── Unavailable           503  try again later; nothing was done
    ├── CloudRefused          502  the cloud account said no: what it is asked for has to change, or the account
    └── EnvironmentFault      (never an HTTP answer of its own) the environment failed, not the task

Each carries `code` (stable, for programs), `message` (for people: what to do), `status`, `retryable` and `details`.
"""

from __future__ import annotations

import copyreg
from enum import StrEnum
from typing import ClassVar

__all__ = [
    "BadRequest",
    "CloudRefused",
    "Conflict",
    "EnvironmentFault",
    "FailureKind",
    "Forbidden",
    "NotFound",
    "NotYet",
    "PromigenceError",
    "RateLimited",
    "SnapshotRefused",
    "StaleClaim",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
]


class FailureKind(StrEnum):
    """What can go wrong with an environment; `app/domain/failure.py` says what follows from each."""

    NO_CAPACITY = "no_capacity"
    SNAPSHOT_UNAVAILABLE = "snapshot_unavailable"
    SNAPSHOT_CORRUPT = "snapshot_corrupt"
    RESTORE_FAILED = "restore_failed"
    BARRIER_FAILED = "barrier_failed"
    CONTRACT_BROKEN = "contract_broken"
    OWN_TEST_FAILED = "own_test_failed"
    EXEC_NOT_STARTED = "exec_not_started"
    GUEST_LOST = "guest_lost"
    GUEST_HUNG = "guest_hung"
    GUEST_PANICKED = "guest_panicked"
    GUEST_OUT_OF_MEMORY = "guest_out_of_memory"
    HOST_STALLED = "host_stalled"
    EGRESS_LOST = "egress_lost"
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    HOST_DISK_FULL = "host_disk_full"
    HOST_LOST = "host_lost"
    WORKER_LOST = "worker_lost"
    REPORTED_BY_COMMAND = "reported_by_command"


class PromigenceError(Exception):
    """Base of the tree."""

    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, code: str, message: str, **details: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[object, ...]:
        """Whole again when unpickled, whatever the class is made with: a task queue tries that before it looks what an
        error is.
        """
        return copyreg.__newobj__, (type(self), self.message), self.__dict__  # type: ignore[attr-defined]


class BadRequest(PromigenceError):
    status = 400


class Unauthorized(PromigenceError):
    status = 401


class Forbidden(PromigenceError):
    status = 403


class NotFound(PromigenceError):
    status = 404


class Conflict(PromigenceError):
    status = 409


class SnapshotRefused(Conflict):
    """`details` has `check`, `output` and `reproduce` (how to run it by hand)."""


class NotYet(Conflict):
    """The same call will do later: nothing was done now."""

    retryable = True


class StaleClaim(Conflict):
    """Raised by a fenced write whose claim is no longer held; the late result is dropped."""

    def __init__(self, attempt_id: str) -> None:
        super().__init__("stale_claim", f"attempt {attempt_id} is no longer held by this claim")


class TooLarge(PromigenceError):
    status = 413


class RateLimited(PromigenceError):
    """`details` has `retry_after_seconds`."""

    status = 429
    retryable = True


class Unavailable(PromigenceError):
    status = 503
    retryable = True


class CloudRefused(PromigenceError):
    """A refusal of the cloud, named; `details` have its own code, message and request id.

    `snapshot_gone`, `snapshot_denied` (of another account, and not shared), `snapshot_not_ready`, `key_denied` (the
    key that it is encrypted with), `volume_gone`, `too_small`, `wrong_zone`, `attached_elsewhere`, `device_taken`,
    `in_use`, `not_ready`, `limit_exceeded`, `denied` (the role may not), `refused` (anything else).
    """

    status = 502


class EnvironmentFault(PromigenceError):
    """A fault of the environment, raised by Machines, Guest and Bundles with the facts that were seen."""

    def __init__(self, kind: FailureKind, message: str, **evidence: object) -> None:
        super().__init__(kind.value, message, **evidence)
        self.kind = kind
        self.evidence = evidence
