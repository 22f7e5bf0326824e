"""What processes leave in Redis that were killed: queues of their own, and where they listened for commands."""

from __future__ import annotations

from collections.abc import Callable

import redis

from infra.queue.names import ALIVE, CONTROL, EARS, control_queue, listener, worker_queue

_OWN = (worker_queue("*"), control_queue("*"))
_OURS = tuple(name.removesuffix("*") for name in _OWN)


def sweep(client: redis.Redis, living: Callable[[], frozenset[str]]) -> int:
    """Remove it all; how many. A Redis may serve others too, whose ears are left alone.

    Of the hosts' processes `living` says which are there, of the control plane's their own sign of life, which runs
    out. Both are read after what there is. Raises RedisError.
    """
    queues = {bytes(key).decode() for name in _OWN for key in client.scan_iter(match=name)}
    ears = [(key, bytes(ear)) for key in EARS for ear in client.sscan_iter(key)]
    kept = {worker_queue(claim) for claim in living()} | _signs_of_life(client)
    gone = [name for name in queues if name not in kept]
    deaf = [(key, ear) for key, ear in ears if _is_gone(ear, kept)]
    with client.pipeline() as pipe:
        for name in gone:
            pipe.delete(name)
        for key, ear in deaf:
            pipe.srem(key, ear)
        pipe.execute()
    return len(gone) + len(deaf)


def _signs_of_life(client: redis.Redis) -> set[str]:
    found = client.scan_iter(match=f"{ALIVE}{CONTROL}.*")
    return {bytes(key).decode().removeprefix(ALIVE) for key in found}


def _is_gone(ear: bytes, kept: set[str]) -> bool:
    name = listener(ear.decode("utf-8", "replace"))
    return name.startswith(_OURS) and name not in kept
