"""Plain programs under keepers, in a machine's place."""

from __future__ import annotations

import os
from pathlib import Path

from app.domain.machine import Deadline, Handle
from infra.clock import HostClock
from infra.qemu import keeper
from infra.qemu.home import Home

PRODUCTS = Path(__file__).resolve().parents[2] / ".promigence"
KEEPER = PRODUCTS / "bin" / "keeper"
SECOND_NS = 1_000_000_000
AGES_NS = 3600 * SECOND_NS


class Kept:
    """Programs under keepers, in one machine's home; what still runs at the end is killed."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.clock = HostClock()
        self._console_out, self.console_in = os.pipe()

    def start(
        self,
        *argv: str,
        lease_ns: int = AGES_NS,
        start_window_ns: int = AGES_NS,
        fds: tuple[int, ...] = (),
        first_uid: int | None = None,
    ) -> Handle:
        """Raises keeper.NotStartedError."""
        now_ns = self.clock.boot_ns()
        program = keeper.Program(
            argv, (self.console_in, *fds), self._console_out, first_uid=first_uid
        )
        deadline = Deadline(now_ns + lease_ns, now_ns + start_window_ns)
        return keeper.start(KEEPER, self.home, program, deadline)

    def close(self) -> None:
        """Nothing of it is left running."""
        keeper.kill(self.home)
        os.close(self._console_out)
        os.close(self.console_in)


def record_of(home: Home) -> dict[str, str]:
    """The keeper's record of an end, as it stands; the deadline in it is the one that was acted on."""
    return dict(word.split("=", 1) for word in home.exit.read_text().split())
