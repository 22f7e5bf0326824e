"""A snapshot's definition: read from TOML, looked over, and made ready to be sent."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast

from promigence._steps.snapshots import Packed
from promigence._tar import pack
from promigence.errors import BadDefinition
from promigence.types import Definition, OwnTest, Shape

__all__ = ["check", "load", "packed_files"]


def load(path: Path) -> Definition:
    """The definition in a TOML file. Raises BadDefinition, naming the file and what is wrong in it."""
    try:
        with path.open("rb") as file:
            told = tomllib.load(file)
    except OSError as error:
        raise BadDefinition(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadDefinition(f"{path} is not TOML: {error}") from error
    return check(told, where=str(path))


def check(told: Mapping[str, Any], where: str = "definition") -> Definition:
    """The same, seen to have only keys that there are. Raises BadDefinition with the nearest known key.

    Values are the server's to judge; a key that is misspelt is told of here, before anything is uploaded.
    """
    _known(where, told, Definition)
    for table, shape in (("shape", Shape), ("test", OwnTest)):
        if isinstance(told.get(table), Mapping):
            _known(f"{where}, table {table!r}", told[table], shape)
    missing = sorted(Definition.__required_keys__ - told.keys())
    if missing:
        raise BadDefinition(f"{where}: {' and '.join(map(repr, missing))} must be given")
    _check_files(where, told.get("files", {}))
    return cast("Definition", dict(told))


def packed_files(definition: Definition, base: Path, into: Path) -> list[Packed]:
    """The tars of a definition's `files`, written into the directory `into`; local paths are relative to `base`.

    Raises BadDefinition for what is not there or cannot be packed.
    """
    packed: list[Packed] = []
    for number, (local, guest) in enumerate(definition.get("files", {}).items()):
        source = (base / local).resolve(strict=False)
        target = PurePosixPath(guest)
        under = target if source.is_dir() else target.parent
        tar = into / f"{number}.tar"
        packed.append(Packed(tar, pack(source, tar, name=target.name), str(under)))
    return packed


def _known(where: str, told: Mapping[str, Any], shape: Any) -> None:
    known: Iterable[str] = sorted(shape.__required_keys__ | shape.__optional_keys__)
    for key in told:
        if key in known:
            continue
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
        raise BadDefinition(f"{where}: unknown key {key!r}{hint}")


def _check_files(where: str, files: object) -> None:
    if not isinstance(files, Mapping):
        raise BadDefinition(f"{where}: 'files' is a table of local paths to guest paths")
    for local, guest in files.items():
        if not isinstance(guest, str) or not guest.startswith("/") or ".." in guest.split("/"):
            raise BadDefinition(f"{where}: files: {local!r} needs an absolute guest path")
