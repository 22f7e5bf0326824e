"""Many workers on one database, killed at random moments and replaced: `python -m tests.contract.crowd`.

One process works for a moment, so that it has every statement at hand, and then forks them all: a new one costs
milliseconds. Exit status 0 when no fork lives any more; 1 when a worker ended otherwise than by a kill, its last words
on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType

from tests.contract.worker import Trade

# How long the crowd is left alone between two kills, in seconds.
KILL_AFTER_S = (0.02, 0.4)
# One in so many of the killed takes its host with it for good, and a new host joins.
TAKES_ITS_HOST = 8


class UnexpectedEndError(Exception):
    """A worker ended that nobody killed, before the work was done."""


@dataclass(slots=True)
class Crowd:
    """Its processes, by id, with their hosts."""

    trade: Trade
    chance: random.Random
    hosts: dict[int, str] = field(default_factory=dict)
    kills: int = 0

    def join(self, host_id: str) -> None:
        """A new worker on this host."""
        seed = self.chance.randrange(1 << 32)
        process = os.fork()
        if process:
            self.hosts[process] = host_id
            return
        status = 1
        try:
            self.trade.work(host_id, seed)
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it was, this process ends here and says so
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def kill_one(self) -> None:
        """End a worker between any two of its instructions, and let another take its place."""
        process = self.chance.choice(sorted(self.hosts))
        os.kill(process, signal.SIGKILL)
        host_id = self.hosts.pop(process)
        _, status = os.waitpid(process, 0)
        signal.sigtimedwait({signal.SIGCHLD}, 0)  # this one's end is known
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status):
                raise UnexpectedEndError
            return
        self.kills += 1
        self.join(f"{host_id}x" if self.kills % TAKES_ITS_HOST == 0 else host_id)

    def ended(self) -> Iterator[int]:
        """Exit statuses of those who ended by themselves since."""
        for process in list(self.hosts):
            gone, status = os.waitpid(process, os.WNOHANG)
            if gone:
                del self.hosts[process]
                yield status

    def stop(self) -> None:
        for process in self.hosts:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self.hosts.clear()


def main() -> int:
    told = _told()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    signal.signal(signal.SIGTERM, _stop)
    trade = Trade(told.url, told.epoch_ns, told.careless, told.logins)
    crowd = Crowd(trade, random.Random(told.seed))
    crowd.trade.learn("host0")
    try:
        for number in range(told.workers):
            crowd.join(f"host{number}")
        _run(crowd, told.kills)
    except UnexpectedEndError:
        return 1
    finally:
        crowd.stop()
    sys.stdout.write(json.dumps({"kills": crowd.kills}))
    return 0


def _told() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    for number in ("workers", "kills", "seed", "epoch-ns"):
        parser.add_argument(f"--{number}", type=int, required=True)
    for name in ("careless", "logins"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args()


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(1)


def _run(crowd: Crowd, kills: int) -> None:
    """Kill at random moments, until enough were; then until the workers find nothing more to do."""
    while crowd.hosts:
        more = crowd.kills < kills
        signal.sigtimedwait({signal.SIGCHLD}, crowd.chance.uniform(*KILL_AFTER_S) if more else 1)
        done = list(crowd.ended())
        if any(done):
            raise UnexpectedEndError
        if more and crowd.hosts and not done:
            crowd.kill_one()


if __name__ == "__main__":
    sys.exit(main())
