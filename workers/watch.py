"""What guests say by themselves becomes bells: a command ended, a channel broke."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from app.ports import Bells


class Ringer:
    """`GuestEvents` of one worker process. Guests' channels never wait for the queue: another thread rings."""

    def __init__(self, bells: Bells, claim: str) -> None:
        self._bells = bells
        self._claim = claim
        # Commands that are being started, and the machine that told of one's end meanwhile.
        self._starting: dict[str, str | None] = {}
        self._lock = threading.Lock()
        self._heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._ring, name="ringer", daemon=True)
        self._thread.start()

    def ended(self, name: str, exec_id: str) -> None:
        """A command of this machine ended; a machine's name is its attempt's id."""
        with self._lock:
            if exec_id in self._starting:
                self._starting[exec_id] = name
                return
        self._heard.put(name)

    def starting(self, exec_id: str, start: Callable[[], bool]) -> None:
        """Start a command, which may end at once: no bell rings for its end while `start` may see to that itself.

        `start` says whether the end is in the rows. If it is not and was heard, the bell rings then.
        """
        with self._lock:
            self._starting.setdefault(exec_id, None)
        settled = False
        try:
            settled = start()
        finally:
            with self._lock:
                name = self._starting.pop(exec_id, None)
            if name is not None and not settled:
                self._heard.put(name)

    def lost(self, name: str) -> None:
        """The control channel of this machine broke: collecting finds out why."""
        self._heard.put(name)

    def close(self) -> None:
        """Ring what was heard, then stop."""
        self._heard.put(None)
        self._thread.join(timeout=5)

    def _ring(self) -> None:
        while (name := self._heard.get()) is not None:
            self._bells.collect(self._claim, name)


class Deaf:
    """`GuestEvents` for a process that looks at machines, or ends them, and serves nobody."""

    def ended(self, name: str, exec_id: str) -> None:
        """The worker hears it."""

    def lost(self, name: str) -> None:
        """The worker hears it, or there is none any more."""
