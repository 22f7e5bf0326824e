"""The two ways in which a guest fails its host, and the file-name trick for long socket paths."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from app.errors import EnvironmentFault, FailureKind

CONNECT_TIMEOUT_S = 5.0


def lost(name: str, what: str, **evidence: object) -> EnvironmentFault:
    """The machine, or its channel, is gone."""
    return EnvironmentFault(FailureKind.GUEST_LOST, f"machine {name}: {what}", **evidence)


def hung(name: str, what: str, **evidence: object) -> EnvironmentFault:
    """The machine is there and does not answer."""
    return EnvironmentFault(FailureKind.GUEST_HUNG, f"machine {name}: {what}", **evidence)


def connect(name: str, path: Path) -> socket.socket:
    """A connection to a machine's socket, however long its path. Raises EnvironmentFault(guest_lost)."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(CONNECT_TIMEOUT_S)
    try:
        # A unix socket's address holds 107 bytes: reach it by its open directory.
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.closing(_Fd(directory)):
            client.connect(f"/proc/self/fd/{directory}/{path.name}")
    except OSError as error:
        client.close()
        raise lost(name, f"its {path.name} does not answer: {error.strerror or error}") from error
    return client


class _Fd:
    def __init__(self, number: int) -> None:
        self._number = number

    def close(self) -> None:
        os.close(self._number)
