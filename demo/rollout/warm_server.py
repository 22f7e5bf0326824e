"""A test process that is frozen warm: the tests and all that they import are in memory, and a run is a fork of it.

    python -m rollout.warm_server /workspace/repo

returns 0 once the process in the background answers on its socket, or prints what failed and
returns 1. A run costs neither the interpreter's start nor the imports. Where the project's sources
have changed since, the run imports the project afresh, so a patch is always seen. A run leaves
nothing behind: no byte code, no test cache, no temporary file.

Protocol, on an AF_UNIX stream socket: the client sends one JSON list of pytest arguments (64 KiB at
most) together with its standard output and error as descriptors. The run's output goes to those;
last, the server answers pytest's exit code as a decimal line. A run that dies (a patch may crash
the interpreter) closes the socket without a line. A client that goes away ends its run.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Never

import pytest

from .warm_tests import SOCKET

PID_FILE = Path("/run/warm-tests.pid")
PYTEST_OPTIONS = ("-q", "-p", "no:cacheprovider", "--color=no")
REQUEST_LIMIT = 64 * 1024
Fingerprint = frozenset[tuple[str, int, int]]


def main(argv: Sequence[str], path: Path = SOCKET, pid_file: Path = PID_FILE) -> int:
    """Import, listen, then stay in the background."""
    repo = Path(argv[0]).resolve()
    failed = warm_up(repo)
    if failed is not None:
        print(failed, file=sys.stderr)
        return 1
    signal.signal(signal.SIGUSR1, _reseed)
    listener = _listen(path)
    server = os.fork()
    if not server:
        _detach()
        serve(listener, repo)
    pid_file.write_text(str(server))
    return 0  # the socket already queues whoever asks


def warm_up(repo: Path) -> str | None:
    """Collect the project's tests, which imports them and all that they need. Returns the output where that failed."""
    sys.dont_write_bytecode = True
    os.chdir(repo)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main([*PYTEST_OPTIONS, "--collect-only", "tests"])
    # What is alive now lives for ever: out of the collector's sight, its pages stay shared between forks.
    gc.collect()
    gc.freeze()
    return output.getvalue() if code else None


def serve(listener: socket.socket, repo: Path) -> Never:
    """Answer for ever, each request in a process of its own."""
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # children are not waited for: the socket tells their end
    imported = fingerprint(repo)
    while True:
        connection, _ = listener.accept()
        with connection:
            if os.fork():
                continue
            listener.close()
            _answer(connection, repo, imported)


def fingerprint(repo: Path) -> Fingerprint:
    """The project's sources as path, change time in ns and size: differs when any of them was touched."""
    stats = ((str(path), path.stat()) for path in repo.rglob("*.py"))
    return frozenset((path, stat.st_ctime_ns, stat.st_size) for path, stat in stats)


def forget_project(repo: Path) -> None:
    """Drop every module whose source is under `repo`, so that the next import reads it anew."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(repo):
            del sys.modules[name]
    importlib.invalidate_caches()


def _reseed(_signal: int, _frame: FrameType | None) -> None:
    """Part this fork's random numbers from its siblings', which woke up in the same state.

    The signal comes from the snapshot's `on_fork`: by then the kernel's generator is this fork's own.
    """
    random.seed()


def _answer(connection: socket.socket, repo: Path, imported: Fingerprint) -> Never:
    """Run what was asked and leave the process, whatever happens: nothing may return into the server's loop."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        arguments = _receive(connection)
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        if fingerprint(repo) != imported:
            forget_project(repo)
        code = _run_tests(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(b"%d\n" % code)
    finally:
        os._exit(0)


def _receive(connection: socket.socket) -> list[str]:
    request, descriptors, _, _ = socket.recv_fds(connection, REQUEST_LIMIT, 2)
    for descriptor, standard in zip(descriptors, (1, 2), strict=True):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    arguments = json.loads(request)
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        raise ValueError("a request is a JSON list of strings")
    return arguments


def _run_tests(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        return int(pytest.main([*PYTEST_OPTIONS, *arguments]))


def _end_with(connection: socket.socket) -> None:
    """Wait for the client to go away, then end the run with all its children."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.killpg(0, signal.SIGKILL)


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(16)
    return listener


def _detach() -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
