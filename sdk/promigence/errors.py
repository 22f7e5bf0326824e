"""Every error that the SDK raises on purpose.

    PromigenceError
    ├── ConfigError              no key, no address, or an address that is none
    ├── ServerUnreachable        no connection, or it broke before the answer was whole
    ├── DeadlineExceeded         the call's total deadline passed, retries included
    ├── WaitTimeout              a wait ended first; the run or the build goes on
    ├── BadAnswer                what answered does not speak this contract (a proxy, another version)
    ├── BadRequest           400 the input is wrong; nothing was done
    │   └── BadDefinition        a snapshot's definition that cannot be built
    ├── Unauthorized         401
    ├── Forbidden            403
    ├── NotFound             404
    ├── Conflict             409 the thing exists and its state forbids this
    │   └── EnvironmentFailure   the machine is lost; never an exit code, never a reward
    ├── TooLarge             413
    ├── RateLimited          429
    ├── ServerError          5xx
    │   └── Unavailable      503 nothing was done; try again later
    └── BuildFailed              a build ended without a snapshot
        └── SnapshotRefused      the environment did not pass its own checks

Each has `code` (stable, for programs), `message` (for people), `status` (the HTTP status, None when no answer came),
`retryable` (the same call may be made again as it stands), `request_id` (for the operator's logs) and `details`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from promigence.types import Failure

__all__ = [
    "BadAnswer",
    "BadDefinition",
    "BadRequest",
    "BuildFailed",
    "ConfigError",
    "Conflict",
    "DeadlineExceeded",
    "EnvironmentFailure",
    "Forbidden",
    "NotFound",
    "PromigenceError",
    "RateLimited",
    "ServerError",
    "ServerUnreachable",
    "SnapshotRefused",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "WaitTimeout",
]


class PromigenceError(Exception):
    """Base of the tree. Survives pickling, so that it can cross a trainer's process pool."""

    default_code: ClassVar[str] = "error"
    default_retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retryable: bool | None = None,
        request_id: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.status = status
        self.retryable = self.default_retryable if retryable is None else retryable
        self.request_id = request_id
        self.details: dict[str, Any] = dict(details or {})

    def __str__(self) -> str:
        where = f", request {self.request_id}" if self.request_id else ""
        return f"{self.message} ({self.code}{where})"


class ConfigError(PromigenceError):
    """Raised before anything is sent."""

    default_code = "bad_config"


class ServerUnreachable(PromigenceError):
    """Whether the request was carried out is not known; the same call with the same key asks again safely."""

    default_code = "server_unreachable"
    default_retryable = True


class DeadlineExceeded(PromigenceError):
    """The last fault that was met on the way is its `__cause__`, if there was one."""

    default_code = "deadline_exceeded"
    default_retryable = True


class WaitTimeout(PromigenceError):
    """`details` has the `run_id` or the `build_id` to wait on again."""

    default_code = "wait_timeout"
    default_retryable = True


class BadAnswer(PromigenceError):
    default_code = "bad_answer"


class BadRequest(PromigenceError):
    default_code = "bad_request"


class BadDefinition(BadRequest):
    default_code = "bad_definition"


class Unauthorized(PromigenceError):
    default_code = "unauthorized"


class Forbidden(PromigenceError):
    default_code = "forbidden"


class NotFound(PromigenceError):
    default_code = "not_found"


class Conflict(PromigenceError):
    default_code = "conflict"


class EnvironmentFailure(Conflict):
    """A held fork's machine is lost. `failure` is as in the report (kind, phase, evidence); `fork_id` says which."""

    default_code = "environment_failure"

    def __init__(self, message: str, *, failure: Failure, fork_id: str, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.failure = failure
        self.fork_id = fork_id

    def __reduce__(self) -> tuple[Any, ...]:
        return _revived, (type(self), self.message, self.failure, self.fork_id), self.__dict__


class TooLarge(PromigenceError):
    default_code = "too_large"


class RateLimited(PromigenceError):
    default_code = "rate_limited"
    default_retryable = True


class ServerError(PromigenceError):
    default_code = "server_error"


class Unavailable(ServerError):
    default_code = "unavailable"
    default_retryable = True


class BuildFailed(PromigenceError):
    """There was nothing to check: `code` says what went wrong. `details` has `build_id` and `state`."""

    default_code = "build_failed"


class SnapshotRefused(BuildFailed):
    """Nothing was stored. `details` has `check`, `output` and `reproduce` (how to run it by hand) as well."""

    default_code = "snapshot_refused"


def _revived(
    kind: type[EnvironmentFailure], message: str, failure: Failure, fork_id: str
) -> EnvironmentFailure:
    return kind(message, failure=failure, fork_id=fork_id)
