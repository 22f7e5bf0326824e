"""In a network of its own: a rule by user shuts the dialler out of a place that its worker reaches.

    unshare --net python -m tests.integration.firewalled

Prints one JSON object: what worker and dialler saw, before the rule and after it.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

from infra.egress import Reach
from infra.egress.dialling import Dialler
from infra.egress.http import RequestRefusedError
from infra.settings import Settings

# A documentation address, as some database's.
DATABASE = "192.0.2.10"
UID = Settings().egress_uid
RULE = ("-A", "OUTPUT", "-d", DATABASE, "-m", "owner", "--uid-owner", str(UID), "-j", "REJECT")


def main() -> None:
    for words in (("link", "set", "lo", "up"), ("addr", "add", f"{DATABASE}/32", "dev", "lo")):
        subprocess.run(("ip", *words), check=True, timeout=10)
    target = f"{DATABASE}:5432"
    with socket.create_server((DATABASE, 5432)), closing(Dialler([target], uid=UID)) as dialler:
        worker = Reach([target])
        before = [_seen(dial, target) for dial in (worker.dial, dialler.dial)]
        subprocess.run(("iptables", *RULE), check=True, timeout=10)
        after = [_seen(dial, target) for dial in (worker.dial, dialler.dial)]
    sys.stdout.write(json.dumps({"before": before, "after": after}))


def _seen(dial: Callable[[str], socket.socket], target: str) -> str:
    try:
        dial(target).close()
    except RequestRefusedError as refused:
        return refused.what
    return "connected"


if __name__ == "__main__":
    main()
