"""What a process of the deployment remembers of its database, on its own disk: a database cannot tell that
it went back.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from app.domain.deployment import Seen

HOST, CONTROL = "host", "control"


class EpochMemory:
    """In the directory of one stack; the processes of its `HOST` share one, those of the `CONTROL` plane another. Each
    replaces it whole.
    """

    def __init__(self, directory: Path, whose: str) -> None:
        self._path = directory / f"deployment.{whose}.json"

    def read(self) -> Seen | None:
        """None where nothing is remembered, or nothing that can be read."""
        try:
            noted = json.loads(self._path.read_text())
            return Seen(**{**noted, "bundles": tuple(noted["bundles"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, seen: Seen) -> None:
        """On a full disk what was remembered before stays, which is as true as it was."""
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(json.dumps(asdict(seen)))
            draft.replace(self._path)
        except OSError:
            return
