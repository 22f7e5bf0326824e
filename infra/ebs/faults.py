"""What went wrong with a volume or snapshot, as the environment's fault that the flow knows."""

from __future__ import annotations

from app.errors import CloudRefused, EnvironmentFault, FailureKind, PromigenceError, Unavailable


def unavailable(reason: str, message: str, /, **seen: object) -> EnvironmentFault:
    """A bundle that cannot be had: why, in one word, and what was seen."""
    known = {name: value for name, value in seen.items() if value is not None}
    return EnvironmentFault(
        FailureKind.SNAPSHOT_UNAVAILABLE, message, **{**known, "reason": reason}
    )


def is_clouds(error: PromigenceError) -> bool:
    """Whether the cloud said it, and not the database, which has to be there before anything can be cleaned up."""
    return isinstance(error, CloudRefused) or (
        isinstance(error, Unavailable) and error.code == "cloud_away"
    )


def told(error: PromigenceError, what: str, **seen: object) -> EnvironmentFault:
    """The cloud's refusal or silence while we were at `what`, with its own code, its request and the ids that it was
    about; a fault stays what it is, and says of which bundle.
    """
    if isinstance(error, EnvironmentFault):
        return EnvironmentFault(error.kind, error.message, **{**seen, **error.evidence})
    own = {name: value for name, value in error.details.items() if value}
    return unavailable(error.code, f"{what}: {error.message}", **{**own, **seen})
