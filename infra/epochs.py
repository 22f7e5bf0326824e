"""What a process of the deployment remembers of its database, on its own disk: a database cannot tell that
it went back.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from app.domain.deployment import Seen

NAME = "deployment.json"


class EpochMemory:
    """In the directory of one stack; its processes share it. Each replaces it whole."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def read(self) -> Seen | None:
        """None where nothing is remembered, or nothing that can be read."""
        try:
            return Seen(**json.loads(self._path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, seen: Seen) -> None:
        """On a full disk what was remembered before stays, which is as true as it was."""
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(json.dumps(asdict(seen)))
            draft.replace(self._path)
        except OSError:
            return
