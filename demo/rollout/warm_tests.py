"""Asks the warm test process for one run.

    python -m rollout.warm_tests PYTEST_ARGUMENT...

prints the run's output and exits with pytest's code, with 1 where the run died, with 75 where no test process answers.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

SOCKET = Path("/run/warm-tests.sock")
DIED = 1
NO_SERVER = 75  # EX_TEMPFAIL: the environment's fault, never the tests'


def run_tests(arguments: Sequence[str], path: Path = SOCKET) -> int:
    """Run in the warm process, with our standard output and error; return pytest's exit code, or DIED.

    Raises ConnectionError or FileNotFoundError when nothing answers on the socket.
    """
    sys.stdout.flush()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(path))
        socket.send_fds(connection, [json.dumps(list(arguments)).encode()], [1, 2])
        answer = connection.makefile().readline()
    return int(answer) if answer else DIED


def main(arguments: Sequence[str]) -> int:
    """The exit code for a run of these arguments."""
    try:
        return run_tests(arguments)
    except (ConnectionError, FileNotFoundError) as error:
        print(f"the warm test process does not answer: {error}", file=sys.stderr)
        return NO_SERVER


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
