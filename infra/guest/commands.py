"""Commands of a machine: how a start is asked for, and what is known of those that this process started."""

from __future__ import annotations

import threading
from collections import OrderedDict

from app.domain.machine import OUTPUT_LIMIT_BYTES, Command
from app.errors import BadRequest
from infra.guest import wire

_KEPT_ENDS = 64
_MAX_STRINGS = 4096
_LONGEST_NS = 2**62


def request(exec_id: str, command: Command) -> bytes:
    """A start request as the guest reads it: NUL-ended strings (see guest/spawn.c). Raises BadRequest."""
    if not wire.is_exec_id(exec_id):
        raise BadRequest(
            "bad_exec_id", f"{exec_id[:100]!r} is no id: letters, digits, . _ -, at most 64"
        )
    if not command.argv or not command.argv[0]:
        raise BadRequest("bad_command", "a command needs a program")
    if max(len(command.argv), len(command.env)) > _MAX_STRINGS:
        raise BadRequest("bad_command", f"at most {_MAX_STRINGS} arguments and as many variables")
    strings = (
        *(() if command.grades is None else ("", command.grades)),
        exec_id,
        str(max(0, min(command.timeout_ns, _LONGEST_NS))),
        str(max(2, min(command.output_limit_bytes, OUTPUT_LIMIT_BYTES))),
        command.cwd or "",
        command.user or "",
        str(len(command.argv)),
        *command.argv,
        str(len(command.env)),
        *(f"{name}={value}" for name, value in command.env),
    )
    if any("\0" in string for string in strings):
        raise BadRequest("bad_command", "a command holds no NUL")
    encoded = b"".join(string.encode("utf-8", "surrogateescape") + b"\0" for string in strings)
    if len(encoded) >= wire.REQUEST_LIMIT:
        raise BadRequest(
            "command_too_long",
            f"arguments and variables take {len(encoded)} bytes; upload what is above {wire.REQUEST_LIMIT}",
        )
    return encoded


class Journal:
    """Which commands this process has under way on one machine, and how the last 64 ended. Safe between threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: set[str] = set()
        self._ends: OrderedDict[str, wire.Ended] = OrderedDict()
        self._closed = False

    def watch(self, exec_id: str) -> None:
        """Expect this command's end. Called before the guest is told to start it, so that no end can be missed."""
        with self._changed:
            if exec_id not in self._ends:
                self._running.add(exec_id)

    def unwatch(self, exec_id: str) -> None:
        """It did not start, or nothing is known of it."""
        with self._changed:
            self._running.discard(exec_id)

    def is_watched(self, exec_id: str) -> bool:
        """Whether its end would be heard."""
        with self._changed:
            return exec_id in self._running

    def ended(self, end: wire.Ended) -> bool:
        """Take an end that the guest told; False if nobody watches for it, or it is told again."""
        with self._changed:
            if end.exec_id not in self._running:
                return False
            self._running.discard(end.exec_id)
            self._ends[end.exec_id] = end
            if len(self._ends) > _KEPT_ENDS:
                self._ends.popitem(last=False)
            self._changed.notify_all()
            return True

    def wait(self, exec_id: str, timeout_s: float) -> wire.Ended | None:
        """How it ended, if that is heard in time; None also when the machine is lost meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: exec_id in self._ends or self._closed, timeout_s)
            return self._ends.get(exec_id)

    def close(self) -> None:
        """Nothing more will be heard: whoever waits goes on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
