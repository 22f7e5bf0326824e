"""The worker's end of its dialler: ask it for connections, and start it again when it dies."""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from app.errors import Unavailable
from infra.egress.dialler import MESSAGE_BYTES
from infra.egress.http import RequestRefusedError
from infra.egress.reach import fault

_READY_S = 30.0
# A resolver's own patience (three servers, two tries of five seconds), and four addresses of fifteen.
_DIAL_S = 90.0
_GONE_S = 5.0
# A timeval of as many seconds: one that reads nothing any more has died.
_SEND_WITHIN = struct.pack("ll", 5, 0)
# A dialler that dies at once, again and again, is left alone for a while: each start costs the host a process.
_STARTS = 5
_STARTS_WITHIN_S = 60.0
# A connection is asked for once more when the dialler died over it: nothing has been said on it yet.
_TRIES = 2
# Ours may hold secrets, and a user may read its own processes' environment.
_NO_ENVIRONMENT: dict[str, str] = {}
_STATUSES = frozenset({400, 403, 502, 504})

log = structlog.get_logger(__name__)


class Dialler:
    """A small process under a user of its own that resolves, checks and connects; see `infra/egress/dialler.py`.

    `operator_allows` and `never` are as in `Reach`. It runs as `uid` where we may become that, else as ourselves.
    Raises Unavailable(no_egress) where it does not start.
    """

    def __init__(
        self, operator_allows: Iterable[str] = (), never: Iterable[str] = (), uid: int | None = None
    ) -> None:
        uid = uid if uid is not None and _may_become(uid) else None
        self._terms = {"allows": [*operator_allows], "never": [*never], "uid": uid}
        self._starts: deque[float] = deque(maxlen=_STARTS)
        self._starting = threading.Lock()
        self._closed = False
        self._line = self._started()

    @property
    def pid(self) -> int:
        """Of the process that serves now, or served last."""
        return self._line.pid

    def dial(self, target: str) -> socket.socket:
        """A connection to `host:port`, as `Reach.dial`; a dialler that is away is a fault of ours (`proxy_away`)."""
        for _ in range(_TRIES):
            try:
                return self._living_line().ask(target)
            except (_GoneError, Unavailable) as gone:
                log.warning("egress_dialler_gone", why=str(gone))
        raise fault(target, 502, "proxy_away", "its proxy was away for a while")

    def close(self) -> None:
        """End it; who still waits is told that it is away. Twice is safe."""
        with self._starting:
            self._closed = True
            self._line.close()

    def _living_line(self) -> _Line:
        with self._starting:
            if self._closed:
                raise _GoneError("it was closed")
            if self._line.is_open:
                return self._line
            self._line.close()
            if len(self._starts) == _STARTS and _ago_s(self._starts[0]) < _STARTS_WITHIN_S:
                raise _GoneError(f"it died {_STARTS} times in {_STARTS_WITHIN_S:.0f} s")
            self._line = self._started()
            return self._line

    def _started(self) -> _Line:
        self._starts.append(time.monotonic())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                process = subprocess.Popen(
                    # -I: nothing of the environment or the current directory is imported.
                    (sys.executable, "-I", "-m", "infra.egress.dialler"),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=_NO_ENVIRONMENT,
                    cwd="/",
                )
        except OSError as error:
            ours.close()
            raise Unavailable("no_egress", f"the egress dialler does not start: {error}") from error
        line = _Line(process, ours)
        line.begin(self._terms)
        return line


class _GoneError(Exception):
    """The dialler, with what was asked of it."""


class _Line:
    """One process of the dialler, the socket to it, and who waits for an answer."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[socket.socket | dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self.pid = process.pid
        self.is_open = False
        self._hearing: threading.Thread | None = None

    def begin(self, terms: dict[str, Any]) -> None:
        """Say the terms, hear that it is ready. Raises Unavailable(no_egress)."""
        try:
            self._channel.settimeout(_READY_S)
            self._channel.send(json.dumps(terms).encode())
            said = json.loads(self._channel.recv(MESSAGE_BYTES) or b'{"failed": "it died"}')
        except (OSError, ValueError) as error:
            said = {"failed": str(error)}
        if not said.get("ready"):
            self.close()
            why = said.get("failed")
            raise Unavailable("no_egress", f"the egress dialler does not start: {why}")
        self._channel.settimeout(None)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_WITHIN)
        self.is_open = True
        self._hearing = threading.Thread(target=self._hear, name="egress-dialler", daemon=True)
        self._hearing.start()

    def ask(self, target: str) -> socket.socket:
        """Raises RequestRefusedError; _GoneError when the process dies over it."""
        number, future = self._asked(target)
        try:
            told = future.result(_DIAL_S)
        except TimeoutError as error:
            if self._taken(number) is not None:
                raise self._late(target) from error
            told = future.result(_GONE_S)
        if isinstance(told, socket.socket):
            return told
        raise _refusal(told, target)

    def close(self) -> None:
        """End the process; who waits is told. Twice is safe."""
        self.is_open = False
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        if self._hearing is not None:
            self._hearing.join(_GONE_S)
        self._channel.close()
        try:
            self._process.wait(_GONE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _asked(self, target: str) -> tuple[int, Future[socket.socket | dict[str, Any]]]:
        future: Future[socket.socket | dict[str, Any]] = Future()
        with self._lock:
            if not self.is_open:
                raise _GoneError("it died")
            number = next(self._numbers)
            self._waiting[number] = future
        try:
            self._channel.send(json.dumps({"n": number, "target": target}).encode())
        except OSError as error:
            # It is heard of here before its end is: who asks next is to have another.
            self.is_open = False
            self._taken(number)
            raise _GoneError(str(error)) from error
        return number, future

    def _late(self, target: str) -> RequestRefusedError:
        """Whose fault it is: the target's (a name whose servers are slow on purpose must not end what others use), or
        the process's, which is killed: what others asked of it is asked of another.
        """
        if self._answers():
            return fault(
                target, 504, "timed_out", f"it took more than {_DIAL_S:.0f} s to get there"
            )
        self._process.kill()
        late = f"its proxy did not get through within {_DIAL_S:.0f} s"
        return fault(target, 502, "proxy_away", late)

    def _answers(self) -> bool:
        """Whether it still does: of an empty target it says at once that it is none."""
        try:
            number, future = self._asked("")
        except _GoneError:
            return False
        with suppress(TimeoutError, _GoneError):
            future.result(_GONE_S)
            return True
        self._taken(number)
        return False

    def _hear(self) -> None:
        why = "it closed its end"
        try:
            while self._hear_one():
                pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            # It sends what a dialler does not send: it is no longer ours.
            why = f"it said what nobody understands: {error}"
        with self._lock:
            self.is_open = False
            left = tuple(self._waiting.values())
            self._waiting.clear()
        self._channel.close()
        for future in left:
            future.set_exception(_GoneError(why))

    def _hear_one(self) -> bool:
        data, numbers, _, _ = socket.recv_fds(
            self._channel, MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
        )
        # Owned before anything can fail, so that none is left open.
        connection = socket.socket(fileno=numbers[0]) if numbers else None
        if connection is not None:
            connection.setblocking(True)
        if not data:
            return False
        said = json.loads(data)
        waiting = self._taken(said["n"])
        if waiting is not None:
            waiting.set_result(said if connection is None else connection)
        elif connection is not None:
            connection.close()
        return True

    def _taken(self, number: int) -> Future[socket.socket | dict[str, Any]] | None:
        with self._lock:
            return self._waiting.pop(number, None)


def _refusal(said: dict[str, Any], target: str) -> RequestRefusedError:
    """As it was raised there; of the target we keep our own word."""
    if said.get("status") not in _STATUSES:
        return fault(target, 502, "unreachable", "its dialler cannot say why")
    about = target if said["what"] else ""
    return RequestRefusedError(said["status"], str(said["message"]), about, str(said["what"]))


def _ago_s(moment: float) -> float:
    return time.monotonic() - moment


def _may_become(uid: int) -> bool:
    """Root, in a user namespace that has this user."""
    if os.geteuid() != 0:
        return False
    ranges = (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(int(first) <= uid < int(first) + int(count) for first, _, count in ranges)
