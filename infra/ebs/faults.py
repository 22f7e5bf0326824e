"""What went wrong with a volume or snapshot, as the environment's fault that the flow knows."""

from __future__ import annotations

from app.errors import CloudRefused, EnvironmentFault, FailureKind, PromigenceError, Unavailable

# Of the cloud's answer, for whoever asks its support.
_CLOUDS_OWN = ("operation", "aws_code", "aws_message", "request_id")


def unavailable(reason: str, message: str, **seen: object) -> EnvironmentFault:
    """A bundle that cannot be had: why, in one word, and what was seen."""
    known = {name: value for name, value in seen.items() if value is not None}
    return EnvironmentFault(FailureKind.SNAPSHOT_UNAVAILABLE, message, reason=reason, **known)


def is_clouds(error: PromigenceError) -> bool:
    """Whether the cloud said it, and not the database, which has to be there before anything can be cleaned up."""
    return isinstance(error, CloudRefused) or (
        isinstance(error, Unavailable) and error.code == "cloud_away"
    )


def told(error: PromigenceError, what: str, **seen: object) -> EnvironmentFault:
    """The cloud's refusal or silence while we were at `what`; a fault stays what it is, and says of which bundle."""
    if isinstance(error, EnvironmentFault):
        return EnvironmentFault(error.kind, error.message, **{**seen, **error.evidence})
    own = {name: error.details[name] for name in _CLOUDS_OWN if error.details.get(name)}
    return unavailable(error.code, f"{what}: {error.message}", **{**seen, **own})
