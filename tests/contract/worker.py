"""A process of `test_store_processes.py`: a worker, a placer and a billing worker in one, on the store of a URL."""

from __future__ import annotations

import random
import sys

from app.domain.fork import EndReason
from app.domain.money import NS_PER_SECOND
from app.domain.placement import choose
from app.domain.run import Claimed, Closing
from infra.store import Stores, create_store
from tests import builders as a

ROUNDS = 30


def work(url: str, seed: int) -> None:
    """Claim, close, share and accrue, in an order of the seed's."""
    store, chance = create_store(url), random.Random(seed)
    held: list[Claimed] = []
    for _ in range(ROUNDS):
        store.hosts.assign(choose(store.hosts.waiting(20), store.hosts.list()))
        claimed = store.attempts.open(a.HOST, f"worker{seed}", "boot", 0, None)
        if claimed is not None:
            held.append(claimed)
        if held and chance.random() < 0.7:
            close(store, chance, held.pop(0))
        store.meters.accrue()
        for run_id in store.meters.sharable():
            store.meters.share(run_id)
    for claimed in held:
        close(store, chance, claimed)
    store.close()


def close(store: Stores, chance: random.Random, claimed: Claimed) -> None:
    then = chance.choice((None, EndReason.COMMAND_PASSED))
    lived_ns = chance.randrange(20 * NS_PER_SECOND)
    failure = a.failed() if then is None else None
    store.attempts.close(claimed, Closing(lived_ns, then, failure=failure))


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]))
