from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import promigence

SDK = Path(promigence.__file__).parent.parent


def test_the_public_names_are_these() -> None:
    assert promigence.__all__ == [
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
    assert all(hasattr(promigence, name) for name in promigence.__all__)


def test_it_is_typed_and_its_version_is_the_distributions() -> None:
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    assert promigence.__version__ == project["version"]
    assert (SDK / "promigence" / "py.typed").exists()


def test_importing_the_client_loads_neither_the_command_line_nor_the_server() -> None:
    """A trainer pays for HTTP and nothing else."""
    code = (
        "import sys, promigence; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"app", "infra", "workers", "typer", "rich", "pydantic", "fastapi", "celery"}
    assert heavy.isdisjoint(loaded.stdout.split())
