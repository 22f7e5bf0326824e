"""The rows of worker processes: who lives on a host, and who is to end once what he holds has ended."""

from __future__ import annotations

from typing import Protocol

from app.domain.worker import Worker


class Workers(Protocol):
    """A host has one worker process, and two while one is replaced. A row is there as long as its process."""

    def begin(self, worker: Worker) -> None:
        """A process begins, before it claims anything. Raises NotFound(unknown_host) if its host has not registered."""
        ...

    def beat(self, claim: str) -> bool:
        """This process lives; whether it is to drain.

        Raises StaleClaim when its row is gone: it was taken for dead, and what it held is another's.
        """
        ...

    def on(self, host_id: str) -> tuple[Worker, ...]:
        """The processes of a host, oldest first."""
        ...

    def claims(self) -> frozenset[str]:
        """Of all processes that have a row: every other claim is of one that ended. A process that has been silent for
        a day has none any more: its host went for good, and nobody is left there to say so.
        """
        ...

    def drain(self, host_id: str) -> tuple[Worker, ...]:
        """Ask all processes of a host to take nothing new; they are returned. Those that begin later are not asked."""
        ...

    def end(self, claim: str) -> None:
        """This process has ended. Twice is safe."""
        ...
