"""A process of its own that connects for one worker, and is nobody: no root, no files, no secrets, no children.

What a hostile name could reach by a flaw in resolving or checking is a user whom the host's firewall keeps from the
instance metadata, the database and Redis (`egress_uid` of the settings). Its standard input is a socket to the worker
(SOCK_SEQPACKET, JSON, one message each): first the terms `{uid, allows, never}`, answered by `{ready}` or `{failed}`;
then requests `{n, target}`, answered in any order by `{n}` with the connection beside it (SCM_RIGHTS), or by
`{n, status, message, target, what}`. It ends when the worker does, by the end of that socket.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import threading
from typing import Any

from app.errors import BadRequest
from infra.egress.http import RequestRefusedError
from infra.egress.reach import Reach

MESSAGE_BYTES = 64 * 1024
# The proxy has a bound for each machine, far below; this one is against a worker gone wrong.
_AT_ONCE = 4096
_STACK_BYTES = 256 * 1024
_PR_SET_NO_NEW_PRIVS = 38


def main() -> None:
    """Serve until the worker is gone."""
    # Who stops a host's processes means the worker first: the way out is there until it has ended.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = socket.socket(fileno=0)
    terms = json.loads(channel.recv(MESSAGE_BYTES))
    try:
        reach = Reach(terms["allows"], terms["never"])
        _become_nobody(terms["uid"])
    except (OSError, BadRequest) as error:
        channel.send(json.dumps({"failed": str(error)}).encode())
        return
    channel.send(b'{"ready": true}')
    _serve(channel, reach)
    # Without waiting for names that are still being resolved.
    os._exit(0)


def _serve(channel: socket.socket, reach: Reach) -> None:
    """A thread for each request: a resolver waits as long as it likes."""
    threading.stack_size(_STACK_BYTES)
    free = threading.BoundedSemaphore(_AT_ONCE)
    while data := channel.recv(MESSAGE_BYTES):
        asked = json.loads(data)
        free.acquire()
        threading.Thread(target=_answer, args=(channel, reach, asked, free), daemon=True).start()


def _answer(
    channel: socket.socket, reach: Reach, asked: dict[str, Any], free: threading.BoundedSemaphore
) -> None:
    told = {"n": asked["n"]}
    try:
        with reach.dial(asked["target"]) as connection:
            socket.send_fds(channel, [json.dumps(told).encode()], [connection.fileno()])
    except RequestRefusedError as refused:
        told |= {"status": refused.status, "message": refused.message, "what": refused.what}
        channel.send(json.dumps(told).encode())
    except Exception:  # whatever it was: who asked does not wait for an answer that will not come
        channel.send(json.dumps({**told, "status": None}).encode())
        raise
    finally:
        free.release()


def _become_nobody(uid: int | None) -> None:
    """For good: every capability goes with the user, and nothing that it could run gives one back."""
    # Read from the library while we may: the user may not.
    "a.b".encode("idna")
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_NO_NEW_PRIVS) failed")


if __name__ == "__main__":
    main()
