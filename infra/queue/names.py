"""What the queue calls things: tasks, lists, channels. Names are the protocol between releases and between hosts.

Whatever belongs to one host has its id in its name, in full and in one place, so that a user of Redis can be held to
it by a pattern; see `rules.py`.
"""

from __future__ import annotations

from enum import StrEnum

# Placing belongs to no host: the billing worker's process takes it, and every other only rings.
CONTROL = "control"
# Every queue of one host or one worker process, and every answer to one who asked, as Redis matches names.
OF_ONE = ("host.*", "worker.*", "*.reply.celery.pidbox")
WAKES = "promigence:wake:"
ALIVE = "promigence:alive:"
ALONE = "promigence:alone:"
# Where kombu keeps, of each worker, that it takes commands from Flower, and the second set that it keeps of them; a
# worker that was killed leaves its own there.
EARS = ("_kombu.binding.celery.pidbox", "_kombu.binding_permanent.celery.pidbox")


class Task(StrEnum):
    """What can be rung. An upgrade runs old and new side by side."""

    PLACE = "promigence.place"
    FORK = "promigence.fork"
    BUILD = "promigence.build"
    VERIFY = "promigence.verify"
    EXEC = "promigence.exec"
    COLLECT = "promigence.collect"
    STOP = "promigence.stop"
    ECHO = "promigence.echo"


def host_queue(host_id: str) -> str:
    """What any worker process of this host may do: bring up forks, build, settle builds."""
    return f"host.{host_id}"


def worker_queue(claim: str) -> str:
    """What only the worker process with this claim can do: it owns the channels of its machines."""
    return f"worker.{claim}"


def control_queue(name: str) -> str:
    """What only this process of the control plane does: answer whether it still listens."""
    return f"{CONTROL}.{name}"


def echo_key(token: str) -> str:
    """Where the answer to an echo is left. Tokens begin with the queue that was asked."""
    return f"promigence:echo:{token}"


def listener(ear: str) -> str:
    """The own queue of the worker whose ear this is: kombu writes key, pattern and `<queue>@<host>.celery.pidbox`."""
    return ear.rpartition("\x16")[2].partition("@")[0]
