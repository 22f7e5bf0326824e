"""`Disk` as the file system of a folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FolderDisk:
    """The file system that a host's data folder lies on."""

    folder: Path

    def free_bytes(self) -> int:
        """What it gives to those who are not root: the rest is the system's own."""
        return shutil.disk_usage(self.folder).free
