"""The `Images` port over what set-up built: a folder of images, and the guest's kernel and tools beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from app.domain.machine import BootImage
from app.errors import BadRequest
from infra.image.recipes import RECIPES, Recipe


@dataclass(frozen=True, slots=True)
class LocalImages:
    """Base images under `<images>/<name>/<content address>/root.img`; one of another recipe is not seen."""

    images: Path
    guest: Path
    recipes: Mapping[str, Recipe] = field(default_factory=lambda: RECIPES)

    def names(self) -> tuple[str, ...]:
        """The images that are built here."""
        return tuple(
            sorted(name for name, recipe in self.recipes.items() if self._disk(recipe).is_file())
        )

    def boot_image(self, name: str) -> BootImage:
        """What a template of this image boots from. Raises BadRequest(unknown_image)."""
        known = self.names()
        if name not in known:
            there = ", ".join(known) or "none is built; run make setup"
            raise BadRequest(
                "unknown_image", f"no base image {name!r}; there are: {there}", names=list(known)
            )
        parts = {
            "image": self._disk(self.recipes[name]),
            "kernel": self.guest / "vmlinuz",
            "initramfs": self.guest / "initramfs.cpio",
            "tools": self.guest / "tools.img",
        }
        return BootImage(
            root_disk=parts["image"],
            kernel=parts["kernel"],
            initramfs=parts["initramfs"],
            tools_disk=parts["tools"],
            made_of=tuple((part, _content(path)) for part, path in parts.items()),
        )

    def _disk(self, recipe: Recipe) -> Path:
        return self.images / recipe.name / recipe.address / "root.img"


@dataclass(frozen=True, slots=True)
class ReleaseImages:
    """The images of this release, where none is built: for a control plane whose hosts are elsewhere, and have them."""

    recipes: Mapping[str, Recipe] = field(default_factory=lambda: RECIPES)

    def names(self) -> tuple[str, ...]:
        """What set-up builds on every host."""
        return tuple(sorted(self.recipes))

    def boot_image(self, name: str) -> BootImage:
        """Raises BadRequest(unknown_image): nothing boots here."""
        raise BadRequest("unknown_image", f"{name!r} is on hosts; this process has no images")


def _content(path: Path) -> str:
    """The sha256 of a file; of one that is missing, a word that says so: who boots it says the rest."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return "missing"
    return _sha256(path, seen.st_ino, seen.st_size, seen.st_mtime_ns)


@lru_cache(maxsize=16)
def _sha256(path: Path, *_as_it_was: int) -> str:
    """Read once while it stays as it is: an image is some hundred MB, and every build asks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
