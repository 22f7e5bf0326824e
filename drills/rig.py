"""One real stack on a PostgreSQL of its own, reached through a forwarder that can cut it off."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from demo.stack import client_of, running, start, stop
from drills import postgres
from drills.forwarder import Forwarder
from drills.postgres import Postgres
from infra.settings import load
from infra.stack.process import Process
from infra.stack.records import Places, read_processes
from promigence import Promigence
from promigence.types import Definition

# Twice the forks of a step: no fork waits for a slot, and none is lost on the way to the next seed.
SLOTS = 48


@dataclass(frozen=True, slots=True)
class Rig:
    """The running stack, its database past the forwarder, and the forwarder.

    `restart` takes the stack down on purpose, with every machine of its host, and starts it again; the last of
    `clients` is of the stack that runs.
    """

    clients: list[Promigence]
    places: Places
    postgres: Postgres
    forwarder: Forwarder
    restart: Callable[[], None]

    @property
    def client(self) -> Promigence:
        """Of the stack as it runs now."""
        return self.clients[-1]

    @property
    def machines(self) -> Path:
        """Where each machine has a directory."""
        return self.places.directory / "machines"

    def parts(self) -> dict[str, Process]:
        """The stack's processes that live now, by name."""
        written = read_processes(self.places)
        return {name: process for name, process in written.items() if process.alive()}

    def kill_part(self, name: str) -> bool:
        """Kill a part as a crash would; False when it is not up. Its supervisor starts it again."""
        process = self.parts().get(name)
        if process is None:
            return False
        process.signal(signal.SIGKILL)
        return True


def smallest(name: str) -> Definition:
    """A snapshot in which nothing but a command is of interest: a busybox of 128 MiB."""
    return {
        "name": name,
        "image": "busybox",
        "shape": {"vcpus": 1, "memory_mib": 128, "disk_gib": 1},
        "test": {"sh": "true", "timeout_seconds": 10, "repeat": 1},
        "spend_cap": 1.0,
    }


@contextlib.contextmanager
def rigged(
    directory: Path, allow: str | None = None, *, environment: Mapping[str, str] | None = None
) -> Iterator[Rig]:
    """All of it up, in a directory of its own; all of it gone at the end. Logs of an error are kept, as the demo's are.

    Its forks may reach `allow`; `environment` is the stack's, over the drill's own.
    Raises subprocess.CalledProcessError, BlockingIOError as `demo.stack.running` does.
    """
    with postgres.running() as server:
        forwarder = Forwarder(server.socket)
        try:
            told = {
                "PROMIGENCE_DATABASE_URL": server.url_by(forwarder.port),
                "PROMIGENCE_HOST_SLOTS": str(SLOTS),
                **(environment or {}),
            }
            with running(directory, allow, environment=told) as stack, ExitStack() as later:
                settings = load(directory)
                clients = [stack.client]

                def restart() -> None:
                    stop(directory)
                    start(directory, allow, told)
                    clients.append(later.enter_context(client_of(directory)))

                places = Places(settings.dir, settings.sockets)
                yield Rig(clients, places, server, forwarder, restart)
        finally:
            forwarder.close()
