"""The zone as a process: EC2, S3, the metadata of instances and their storage, on one port of the loopback.

    python -m drills.rehearsal.serve FOLDER ZONE

It says its address on standard output, and ends when its standard input does: whoever started it, and is killed, takes
it along. What it made is gone then.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from drills.rehearsal.account import Account, Fault
from drills.rehearsal.metadata import PREFIX, Metadata
from drills.rehearsal.storage import opened

CONTROL = "/zone/"


class Front:
    """A WSGI application: who is asked goes by the path."""

    def __init__(self, account: Account, metadata: Metadata) -> None:
        self._account = account
        self._metadata = metadata

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path: str = environ.get("PATH_INFO", "")
        if path.startswith(PREFIX):
            return self._metadata(environ, start_response)
        if path.startswith(CONTROL):
            return self._control(Request(environ))(environ, start_response)
        return self._account(environ, start_response)

    def _control(self, request: Request) -> Response:
        told = request.get_json()
        match request.path.removeprefix(CONTROL):
            case "trouble":
                self._account.trouble(Fault(**told))
            case "notice":
                self._metadata.notify(**told)
            case _:
                return Response("Not Found", 404)
        return Response(status=204)


class _Quiet(MotoRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        """What happened is seen in the rows and in the storage."""


def main() -> None:
    """Serve until standard input ends, or SIGTERM."""
    folder, zone = Path(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with opened(folder / "storage") as storage:
        region = zone[:-1]
        account = Account(storage, lambda instance_id: folder / "devices" / instance_id, region)
        front = Front(account, Metadata(zone, region))
        server = make_server("127.0.0.1", 0, front, threaded=True, request_handler=_Quiet)
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="zone")
        thread.start()
        try:
            print(f"http://127.0.0.1:{server.server_port}", flush=True)
            sys.stdin.read()
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


if __name__ == "__main__":
    main()
