"""What each user of Redis may do, as data: the words of `ACL SETUSER` of Redis 7, and of ElastiCache's access strings.

Nobody may run scripts, read or change the server's settings, list keys without being the control plane, or flush.
Commands are named one by one: what Redis or its clients learn later is allowed to nobody.
"""

from __future__ import annotations

from app.domain.access import host_named
from infra.queue.names import CONTROL, WAKES, echo_key, host_queue, worker_queue

# No `client|setinfo`: Redis 7.0 does not know it, and who is refused it goes on.
_CONNECTION = ("ping", "hello", "auth", "select", "client|setname", "multi", "exec", "discard")
# What Celery's worker and its publishers do with lists and with the sets of who listens.
_LISTS = ("lpush", "rpush", "brpop", "rpop", "llen", "exists", "del", "sadd", "srem", "smembers")
_ECHOES = ("blpop", "expire")
_LISTENING = ("subscribe", "unsubscribe", "psubscribe", "punsubscribe")

_PIDBOX, _REPLIES, _EVENTS = "celery.pidbox", "reply.celery.pidbox", "celeryev"


def of_host(host_id: str, db: int = 0) -> tuple[str, ...]:
    """A host's worker processes: they take and give bells of their own host, and for placing they only ring.

    They tell events and wake-ups and hear neither; of the commands that are sent to all they hear, and send none.
    Raises BadRequest(bad_host_id).
    """
    host_named(host_id)
    own = host_queue(host_id), worker_queue(f"{host_id}:*")
    return (
        *_start((*_CONNECTION, *_LISTS, *_ECHOES, "publish")),
        *(f"~{name}" for name in own),
        f"~{echo_key(host_queue(host_id))}:*",
        f"~{echo_key(worker_queue(host_id))}:*",
        f"&{_channel(db, _EVENTS)}/*",
        f"&{WAKES}*",
        _selector(("lpush",), f"%W~{CONTROL}", f"%W~*.{_REPLIES}"),
        _selector(("sadd", "srem"), *(f"%W~{key}" for key in _bindings(_PIDBOX))),
        _selector(("smembers",), f"%R~{_bindings(_REPLIES)[0]}"),
        _selector(_LISTENING, f"&{_channel(db, _PIDBOX)}"),
    )


def of_flower(db: int = 0) -> tuple[str, ...]:
    """Flower: it hears events, asks workers and hears what they answer, and sees how long queues are. It can put
    nothing in a queue, take nothing out, and look at no bell.
    """
    answers = _bindings(_REPLIES), _bindings(_EVENTS)
    return (
        *_start((*_CONNECTION, *_LISTS, "publish")),
        *(f"%R~{name}" for name in ("host.*", "worker.*", CONTROL, f"{CONTROL}.*")),
        *(f"~{key}" for keys in answers for key in keys),
        f"~*.{_REPLIES}",
        f"~{_EVENTS}.*",
        f"&{_channel(db, _PIDBOX)}",
        _selector(_LISTENING, f"&{_channel(db, _EVENTS)}/*"),
    )


def of_control(db: int = 0) -> tuple[str, ...]:
    """API and billing worker: all that is the deployment's in this Redis, and nothing of the server itself."""
    looking = ("scan", "sscan", "ttl", "type", "object|idletime", "set", "get")
    return (
        *_start((*_CONNECTION, *_LISTS, *_ECHOES, *looking, *_LISTENING, "publish")),
        *(f"~{name}" for name in ("host.*", "worker.*", CONTROL, f"{CONTROL}.*", "promigence:*")),
        *(f"~{key}" for name in (_PIDBOX, _REPLIES, _EVENTS) for key in _bindings(name)),
        f"~*.{_REPLIES}",
        *(f"&{_channel(db, name)}" for name in (_PIDBOX, f"{_EVENTS}/*")),
        f"&{WAKES}*",
    )


def _start(commands: tuple[str, ...]) -> tuple[str, ...]:
    return ("on", "-@all", *(f"+{name}" for name in commands))


def _selector(commands: tuple[str, ...], *patterns: str) -> str:
    """What is allowed together, apart from the rest: these commands on these keys or channels."""
    return f"({' '.join((*(f'+{name}' for name in commands), *patterns))})"


def _bindings(exchange: str) -> tuple[str, str]:
    """Where kombu keeps who listens to an exchange."""
    return f"_kombu.binding.{exchange}", f"_kombu.binding_permanent.{exchange}"


def _channel(db: int, exchange: str) -> str:
    return f"/{db}.{exchange}"
