"""The queue between the rows and whoever works on them: doorbells, and waiting for one."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Bells(Protocol):
    """The queue: ring a doorbell after the rows are committed. A bell may be lost or ring twice; the rows
    are the truth.

    Raises nothing when the queue is away: recovery rings again from the rows.
    """

    def place(self) -> None:
        """Some fork waits for a host."""
        ...

    def fork(self, host_id: str, count: int = 1) -> None:
        """So many forks are placed on this host: ring as many workers, no more than it runs at once."""
        ...

    def build(self, host_id: str, build_id: str) -> None:
        """A template is placed on this host."""
        ...

    def verify(self, host_id: str, build_id: str) -> None:
        """All forks of a build's internal run have ended; `host_id` holds its candidate."""
        ...

    def exec(self, claim: str, exec_id: str) -> None:
        """A command waits on a machine of this worker process: one process owns a machine's channels."""
        ...

    def collect(self, claim: str, attempt_id: str) -> None:
        """Something ended on this machine of this worker process: a command, or the machine."""
        ...

    def stop(self, claim: str, attempt_id: str) -> None:
        """A fork whose machine this worker process holds is asked to stop."""
        ...

    def woken(self, exec_id: str) -> None:
        """The result of this command is stored (for API handlers that wait)."""
        ...


class Waiter(Protocol):
    async def wait(self, timeout_s: float) -> bool:
        """True when woken since the listening began, False after `timeout_s`."""
        ...


class Wakes(Protocol):
    """The other end of `Bells.woken`, for async API handlers: listen first, then read the row, then wait."""

    def listening(self, exec_id: str) -> AbstractAsyncContextManager[Waiter]:
        """Without the queue it still returns a waiter, which then only times out (1 s at most, so that rows
        are re-read).
        """
        ...
