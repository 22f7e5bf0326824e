"""A small client of QEMU's monitor protocol (QMP): one thread reads for all machines, callers wait for what they asked.

The monitor is not trusted: a guest may have broken into its QEMU. So lines, events and waiting are all bounded.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from app.domain.machine import MonitorEvent
from app.ports import Clock

EVENTS_KEPT = 64
# A monitor answers within milliseconds; a host on which hundreds of machines start at once does not.
COMMAND_TIMEOUT_S = 30.0
_TOLD_WITHIN_S = 5.0
LINE_LIMIT_BYTES = 1 << 20

Message = dict[str, Any]


class MonitorLostError(Exception):
    """The monitor's connection ended, or what came over it was no QMP."""


class MonitorSilentError(Exception):
    """The monitor did not answer in time."""


class MonitorRefusedError(Exception):
    """QEMU refused a command; the text is its own."""


class MessageReader:
    """Bytes in, messages out. Raises MonitorLostError for what is no JSON object on a line of at most 1 MiB."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_LIMIT_BYTES:
            raise MonitorLostError(f"a line of more than {LINE_LIMIT_BYTES} bytes")
        return [_message(line) for line in lines if line.strip()]


def _message(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise MonitorLostError(f"no JSON: {line[:80]!r}") from error
    if not isinstance(message, dict):
        raise MonitorLostError(f"no JSON object: {line[:80]!r}")
    return message


class Monitor:
    """One machine's monitor. Made by `MonitorLoop.attach`; safe to call from many threads."""

    def __init__(self, name: str, connection: socket.socket, clock: Clock) -> None:
        self.name = name
        self._connection = connection
        self._clock = clock
        self._reader = MessageReader()
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._ids = itertools.count(1)
        self._greeted = False
        self._replies: dict[int, Message] = {}
        self._waited_for: set[int] = set()
        self._events: deque[MonitorEvent] = deque(maxlen=EVENTS_KEPT)
        self._lost: str | None = None
        # Set once nothing more will be heard, and whoever had to be told of the end has been.
        self.finished = threading.Event()

    @property
    def events(self) -> tuple[MonitorEvent, ...]:
        """The last events, oldest first."""
        with self._changed:
            return tuple(self._events)

    def greet(self, timeout_s: float) -> None:
        """Wait for QEMU's greeting and begin. Raises MonitorSilentError, MonitorLostError."""
        self._wait(lambda: self._greeted, timeout_s, "greeting")
        # Without it the end of a migration is no event, and we would have to poll.
        events = {"capability": "events", "state": True}
        self.execute("qmp_capabilities", timeout_s)
        self.execute("migrate-set-capabilities", timeout_s, capabilities=[events])

    def execute(
        self, command: str, timeout_s: float = COMMAND_TIMEOUT_S, **arguments: object
    ) -> Any:
        """Run one command and return what it returns.

        Raises MonitorRefusedError, MonitorSilentError, MonitorLostError.
        """
        number = next(self._ids)
        with self._changed:
            self._waited_for.add(number)
        try:
            self._send({"execute": command, "arguments": arguments, "id": number})
            self._wait(lambda: number in self._replies, timeout_s, command)
            reply = self._replies[number]
        finally:
            with self._changed:
                self._waited_for.discard(number)
                self._replies.pop(number, None)
        if "error" in reply:
            raise MonitorRefusedError(f"{command}: {str(reply['error'])[:500]}")
        return reply.get("return")

    def expect(self, is_it: Callable[[MonitorEvent], bool], timeout_s: float) -> MonitorEvent:
        """Wait for an event, which may have come already. Raises MonitorSilentError, MonitorLostError."""
        self._wait(lambda: any(map(is_it, self._events)), timeout_s, "event")
        return next(event for event in self.events if is_it(event))

    def note(self, event: MonitorEvent) -> None:
        """Keep an event that was learnt otherwise than by hearing it."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def receive(self) -> tuple[MonitorEvent, ...]:
        """Take in what has arrived; the loop's thread calls it. Returns the new events; raises MonitorLostError."""
        try:
            data = self._connection.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return ()
        except OSError as error:
            raise MonitorLostError(str(error)) from error
        if not data:
            raise MonitorLostError("QEMU closed it")
        return self._take(self._reader.feed(data))

    def lose(self, why: str) -> None:
        """Mark the connection as ended: whoever waits is told. Twice is safe."""
        with self._changed:
            self._lost = self._lost or why
            self._changed.notify_all()

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost is not None

    def fileno(self) -> int:
        """Of the connection; -1 once it is closed."""
        return self._connection.fileno()

    def close(self) -> None:
        """Twice is safe."""
        self.lose("we closed it")
        self._connection.close()

    def _take(self, messages: list[Message]) -> tuple[MonitorEvent, ...]:
        now_ns = self._clock.boot_ns()
        events = []
        with self._changed:
            for message in messages:
                if "QMP" in message:
                    self._greeted = True
                elif "event" in message:
                    events.append(_event(message, now_ns))
                elif message.get("id") in self._waited_for:
                    self._replies[message["id"]] = message
            self._events.extend(events)
            self._changed.notify_all()
        return tuple(events)

    def _send(self, message: Message) -> None:
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self._connection.sendall(line)
        except TimeoutError as error:
            raise MonitorSilentError(f"does not read: {message['execute']}") from error
        except OSError as error:
            raise MonitorLostError(str(error)) from error

    def _wait(self, is_there: Callable[[], bool], timeout_s: float, what: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_there() or self._lost is not None, timeout_s)
            if is_there():
                return
            if self._lost is not None:
                raise MonitorLostError(f"{what}: {self._lost}")
        raise MonitorSilentError(f"{what}: no answer within {timeout_s:.1f} s")


def _event(message: Message, now_ns: int) -> MonitorEvent:
    data = message.get("data")
    return MonitorEvent(str(message["event"])[:64], data if isinstance(data, dict) else {}, now_ns)


class MonitorLoop:
    """One thread that reads the monitors of all machines of this process.

    `heard` is told of each event, `lost` once of each monitor that ended by itself; both on the loop's thread.
    """

    def __init__(
        self,
        clock: Clock,
        heard: Callable[[Monitor, MonitorEvent], None],
        lost: Callable[[Monitor], None],
    ) -> None:
        self._clock = clock
        self._heard = heard
        self._lost = lost
        self._poll = select.epoll()
        self._wake, self._woken = socket.socketpair()
        self._poll.register(self._woken, select.EPOLLIN)
        self._monitors: dict[int, Monitor] = {}
        # A number may be closed by one thread and be another file's a moment later: look up, read and close are one.
        self._reading = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="qmp", daemon=True)
        self._thread.start()

    def attach(self, name: str, connection: socket.socket) -> Monitor:
        """Read this connection from now on; it belongs to the monitor."""
        monitor = Monitor(name, connection, self._clock)
        with self._reading:
            self._monitors[monitor.fileno()] = monitor
            self._poll.register(monitor.fileno(), select.EPOLLIN)
        return monitor

    def detach(self, monitor: Monitor) -> None:
        """Stop reading and close. Who is being told of its end right now has heard so afterwards. Twice is safe."""
        if self._drop(monitor):
            monitor.finished.set()
        monitor.finished.wait(_TOLD_WITHIN_S)

    def close(self) -> None:
        """End the thread and every connection; the machines live on."""
        self._wake.close()
        self._thread.join()
        for monitor in tuple(self._monitors.values()):
            self.detach(monitor)
        self._poll.close()
        self._woken.close()

    def _run(self) -> None:
        while True:
            for number, _ in self._poll.poll():
                if number == self._woken.fileno():
                    return
                self._read(number)

    def _read(self, number: int) -> None:
        with self._reading:
            monitor = self._monitors.get(number)
            if monitor is None:  # detached since the poll returned
                return
            try:
                events = monitor.receive()
            except MonitorLostError as error:
                monitor.lose(str(error))
                events = ()
        for event in events:
            # A listener without room or descriptors must not deafen all other machines; a keeper needs neither.
            with contextlib.suppress(OSError):
                self._heard(monitor, event)
        if monitor.is_lost and self._drop(monitor):
            self._lost(monitor)
            monitor.finished.set()

    def _drop(self, monitor: Monitor) -> bool:
        """Whether it was there still."""
        with self._reading:
            number = monitor.fileno()
            if self._monitors.get(number) is not monitor:
                return False
            del self._monitors[number]
            self._poll.unregister(number)
            monitor.close()
            return True
