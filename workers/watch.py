"""What guests say by themselves becomes bells: a command ended, a channel broke."""

from __future__ import annotations

import queue
import threading

from app.ports import Bells


class Ringer:
    """`GuestEvents` of one worker process. Guests' channels never wait for the queue: another thread rings."""

    def __init__(self, bells: Bells, host_id: str) -> None:
        self._bells = bells
        self._host_id = host_id
        self._heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._ring, name="ringer", daemon=True)
        self._thread.start()

    def ended(self, name: str, exec_id: str) -> None:  # noqa: ARG002 - rows know which commands run
        """A command of this machine ended; a machine's name is its attempt's id."""
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
            self._bells.collect(self._host_id, name)


class Deaf:
    """`GuestEvents` for a process that looks at machines, or ends them, and serves nobody."""

    def ended(self, name: str, exec_id: str) -> None:
        """The worker hears it."""

    def lost(self, name: str) -> None:
        """The worker hears it, or there is none any more."""
