"""Promigence: verified snapshots, warm forks and a hard spend cap for RL environments.

from promigence import Promigence

client = Promigence()        # reads PROMIGENCE_API_KEY and PROMIGENCE_BASE_URL
"""

from __future__ import annotations

from promigence import types
from promigence._rewards import rewards
from promigence._version import __version__
from promigence.client import Promigence
from promigence.errors import (
    BadAnswer,
    BadDefinition,
    BadRequest,
    BuildFailed,
    ConfigError,
    Conflict,
    DeadlineExceeded,
    EnvironmentFailure,
    Forbidden,
    NotFound,
    PromigenceError,
    RateLimited,
    ServerError,
    ServerUnreachable,
    SnapshotRefused,
    TooLarge,
    Unauthorized,
    Unavailable,
    WaitTimeout,
)

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
    "Promigence",
    "PromigenceError",
    "RateLimited",
    "ServerError",
    "ServerUnreachable",
    "SnapshotRefused",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "WaitTimeout",
    "__version__",
    "rewards",
    "types",
]
