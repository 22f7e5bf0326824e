"""What a step has left behind when nothing runs any more: processes, files, sockets, mounts, groups, keys, rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import redis

from drills.rig import Rig
from drills.rows import unfinished
from infra.queue import CONTROL, host_queue

_GROUPS = Path("/sys/fs/cgroup/promigence")
_LOOK_S = 0.25
_REDIS_S = 5.0
# What Celery keeps in Redis for as long as it lives; every other key has to expire by itself.
_LASTING = ("_kombu.binding.", "_kombu.binding_permanent.")


def left(rig: Rig, names: frozenset[str], since: frozenset[str]) -> list[str]:
    """Everything that is there and should not be. `names` are the step's machines; `since` is what was there before."""
    found = [
        *_processes(rig.machines),
        *_files(rig),
        *_kernel(rig, names),
        *_keys(rig),
        *unfinished(rig.postgres),
    ]
    return [line for line in found if line not in since]


def settled(look: Callable[[], list[str]], within_s: float) -> list[str]:
    """Look until nothing is left, or time is up; what is left then."""
    until = time.monotonic() + within_s
    while (found := look()) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return found


def _processes(machines: Path) -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cwd").readlink().is_relative_to(machines):
                yield f"process {entry.name} lives in {(entry / 'cwd').readlink().name}"
        except OSError:
            continue  # gone meanwhile


def _files(rig: Rig) -> Iterator[str]:
    directory = rig.places.directory
    for home in rig.machines.iterdir():
        yield f"the directory of machine {home.name}"
    for staged in (directory / "bundles" / "staged").iterdir():
        yield f"staged bundle {staged.name}"
    for path in directory.rglob("*"):
        if path.is_socket():
            yield f"socket {path.relative_to(directory)}"
    for path in rig.places.run_dir.iterdir():
        yield f"{path.name} in the runtime directory"


def _kernel(rig: Rig, names: frozenset[str]) -> Iterator[str]:
    directory = str(rig.places.directory)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.split()[4].startswith(directory):
            yield f"mount {line.split()[4]}"
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        if backing.read_text().startswith(directory):
            yield f"loop device {backing.parent.parent.name}"
    for name in names:
        if (_GROUPS / name).exists():
            yield f"control group {name}"


def _keys(rig: Rig) -> Iterator[str]:
    client = redis.Redis(
        unix_socket_path=str(rig.places.run_dir / "redis.sock"), socket_timeout=_REDIS_S
    )
    (host,) = rig.postgres.rows("SELECT host_id FROM host")
    queues = (CONTROL, host_queue(host["host_id"]))
    try:
        for raw in client.scan_iter(count=1000):
            key = raw.decode()
            if client.ttl(key) == -1 and not key.startswith(_LASTING) and key not in queues:
                yield f"Redis key {key} of no end"
        for queue in queues:
            if waiting := client.llen(queue):
                yield f"{waiting} bells in queue {queue}"
    except redis.RedisError as error:
        yield f"Redis does not answer: {type(error).__name__}"
    finally:
        client.close()
