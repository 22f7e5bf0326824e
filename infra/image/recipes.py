"""What each base image is made of; its content address follows from all of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

# Counts up when the builder makes something else of the same recipe.
BUILDER_VERSION = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """A root disk: a Debian suite with packages, or, without a suite, one static busybox.

    `headroom_mib` is free space on the disk as built; it grows to its fork's `disk_gib` before it boots.
    """

    name: str
    suite: str | None
    packages: tuple[str, ...]
    headroom_mib: int

    @property
    def address(self) -> str:
        """Sixteen hex digits that change with every part of the recipe and with the builder."""
        parts = json.dumps({"builder": BUILDER_VERSION, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()[:16]


DEBIAN_12 = Recipe(
    name="debian-12",
    suite="bookworm",
    packages=(
        "ca-certificates",
        "git",
        "procps",
        "python-is-python3",
        "python3",
        "python3-pip",
        "python3-venv",
    ),
    headroom_mib=64,
)
BUSYBOX = Recipe(name="busybox", suite=None, packages=(), headroom_mib=4)

RECIPES = {recipe.name: recipe for recipe in (DEBIAN_12, BUSYBOX)}
