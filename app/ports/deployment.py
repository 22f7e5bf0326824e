"""The database's own history, and the processes of the control plane that work on it."""

from __future__ import annotations

from typing import Protocol

from app.domain.deployment import Deployment
from app.domain.process import ControlProcess


class Deployments(Protocol):
    """One row: which deployment this is, in which epoch, how far it has come."""

    def now(self) -> Deployment:
        """As the database says. Raises Unavailable."""
        ...

    def beat(self, epoch: int) -> Deployment:
        """Go on by one, if it still is this epoch; the deployment as it is then."""
        ...

    def begin_epoch(self, *, copy: bool = False) -> Deployment:
        """A restore is over: machines of every earlier epoch are to end. With `copy` the database is a copy, and of
        another deployment from now on. Each call begins one more.
        """
        ...

    def tell_ahead(self, host_id: str, remembered: tuple[int, int] | None) -> None:
        """This host remembers an epoch and a beat that the database has not come to; None: it does not, or no more."""
        ...

    def ahead(self) -> tuple[int, int]:
        """(hosts that remember more than the database knows, hosts that are heard of at all)."""
        ...


class Processes(Protocol):
    """API and billing processes: which release each is of. A row is there as long as its process; that of one which was
    killed goes within a day.
    """

    def begin(self, process: ControlProcess) -> None:
        """A process begins, or goes on with a database that has lost its row."""
        ...

    def beat(self, process_id: str) -> bool:
        """This process lives; False when its row is gone."""
        ...

    def end(self, process_id: str) -> None:
        """This process has ended. Twice is safe."""
        ...

    def all(self) -> tuple[ControlProcess, ...]:
        """All that have a row, with the age of their heartbeats by the database's clock."""
        ...
