"""The `Images` port over what set-up built: a folder of images, and the guest's kernel and tools beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        return BootImage(
            root_disk=self._disk(self.recipes[name]),
            kernel=self.guest / "vmlinuz",
            initramfs=self.guest / "initramfs.cpio",
            tools_disk=self.guest / "tools.img",
        )

    def _disk(self, recipe: Recipe) -> Path:
        return self.images / recipe.name / recipe.address / "root.img"
