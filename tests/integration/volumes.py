"""What tests need whose volumes are loop devices, on storage whose snapshots share blocks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

needs_volumes = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/loop-control").exists() or not shutil.which("mkfs.xfs"),
    reason="only root can mount volumes, and they need loop devices and mkfs.xfs",
)
