"""The control port spoken by hand: what a machine test needs without the adapter under test elsewhere."""

from __future__ import annotations

import secrets
import time
import uuid
from pathlib import Path
from types import TracebackType

from infra.qemu.home import Home, connect


class Wire:
    """One connection to a guest's PID 1. `timeout_s` bounds every line."""

    def __init__(self, root: Path, name: str, timeout_s: float) -> None:
        self._connection = connect(Home(root / name).control, timeout_s)
        self._lines = self._connection.makefile("rb")

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lines.close()
        self._connection.close()

    def hear(self) -> dict[str, str]:
        """The next line: its verb under `verb`, and its words. Raises EOFError when the machine is gone."""
        line = self._lines.readline().decode()
        if not line:
            raise EOFError("the control port closed")
        verb, *words = line.split()
        return {"verb": verb, **dict(word.split("=", 1) for word in words)}

    def ask(self, line: str) -> dict[str, str]:
        """Say a line and hear the answer."""
        self._connection.sendall(line.encode() + b"\n")
        return self.hear()

    def wake(self, hostname: str = "fork") -> dict[str, str]:
        """Pass the barrier as a new machine."""
        words = {
            "nonce": secrets.token_hex(16),
            "entropy": secrets.token_hex(64),
            "time_ns": str(time.time_ns()),
            "hostname": hostname,
            "fork_id": hostname,
            "generation": str(uuid.uuid4()),
            "machine_id": secrets.token_hex(16),
            # No key that a server could use: nobody connects to it here.
            "host_key_b64": "bm9uZQ==",
        }
        awake = self.ask("WAKE " + " ".join(f"{key}={value}" for key, value in words.items()))
        assert awake["verb"] == "AWAKE", awake
        assert awake["nonce"] == words["nonce"]
        return awake
