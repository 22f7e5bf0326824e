"""The directory of one machine: its sockets, its keeper's records and its disks.

Only the worker and the keeper can enter it. QEMU, which is not trusted, is handed open descriptors and no path of it;
so a guest that breaks out of QEMU can neither move its own deadline nor forge how it ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import BadRequest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Home:
    """Paths of one machine. `monitor`, `control` and `ssh` are sockets on which QEMU listens."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def monitor(self) -> Path:
        return self.directory / "qmp.sock"

    @property
    def control(self) -> Path:
        return self.directory / "control.sock"

    @property
    def ssh(self) -> Path:
        return self.directory / "ssh.sock"

    @property
    def deadline(self) -> Path:
        return self.directory / "deadline"

    @property
    def epoch(self) -> Path:
        """The deployment's, in which the machine was started."""
        return self.directory / "epoch"

    @property
    def born(self) -> Path:
        return self.directory / "born"

    @property
    def exit(self) -> Path:
        return self.directory / "exit"

    @property
    def stops(self) -> Path:
        return self.directory / "stops"

    @property
    def kills(self) -> Path:
        """What the kernel had killed for want of memory when the machine was born."""
        return self.directory / "kills.json"

    @property
    def killed(self) -> Path:
        """What shows that the kernel killed this machine so; empty where nothing does."""
        return self.directory / "killed"

    @property
    def last(self) -> Path:
        """How the machine stood just before we ended it."""
        return self.directory / "last.json"

    def mark(self, exec_id: str) -> Path:
        """What was seen of the machine when this command was about to start."""
        return self.directory / f"mark.{exec_id}"

    @property
    def events(self) -> Path:
        return self.directory / "events.json"

    @property
    def overlay(self) -> Path:
        return self.directory / "overlay.qcow2"

    @property
    def template(self) -> Path:
        """What `boot` noted for `freeze`; there is none in a fork."""
        return self.directory / "template.json"


def home_of(root: Path, name: str) -> Home:
    """Where the machine `name` lives under the data folder. Raises BadRequest for a name that is no file name."""
    if not _NAME.fullmatch(name):
        raise BadRequest("bad_machine_name", f"{name!r} is no machine name: letters, digits, . _ -")
    return Home(root / name)


def listen(path: Path) -> socket.socket:
    """A listening unix socket at `path`, however long that is; the caller closes it."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as short:
            server.bind(short)
        server.listen(1)
    except BaseException:
        server.close()
        raise
    return server


def connect(path: Path, timeout_s: float) -> socket.socket:
    """A connection to the unix socket at `path`; raises OSError. The caller closes it."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(timeout_s)
        with _short(path) as short:
            client.connect(short)
    except BaseException:
        client.close()
        raise
    return client


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """The same place by way of its open directory: a unix socket's address holds 107 bytes at most."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file so that a reader sees the old text or the new, never a part."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text)
    draft.replace(path)
