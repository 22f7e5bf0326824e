"""Files that were half made or half removed when whoever did it died."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from app.domain.leak import Leak, LeakKind, Trace

# What bundles and blobs call a thing that is on its way in or out.
_BUNDLES, _BLOBS = ("bundles/stored", "bundles/staged"), "blobs"
_MARKS = ("bundles/checked", "bundles/refused", "bundles/used", "bundles/watched")
_NEW_BLOB = ".new-"


def remains(directory: Path, *, blobs: bool) -> Iterator[Trace]:
    """Bundles that were being removed, marks of bundles that are gone, and with `blobs` uploads that never ended."""
    for folder in _BUNDLES:
        yield from _traces(directory, LeakKind.BUNDLE_REMAINS, (directory / folder).glob(".*"))
    for folder in _MARKS:
        marks = (directory / folder).glob("*")
        lone = (mark for mark in marks if not _has_bundle(directory, mark.name))
        yield from _traces(directory, LeakKind.BUNDLE_REMAINS, lone)
    uploads = (directory / _BLOBS).glob(f"{_NEW_BLOB}*") if blobs else iter(())
    yield from _traces(directory, LeakKind.BLOB_REMAINS, uploads)


def remove(directory: Path, leak: Leak, *, blobs: bool) -> bool:
    """Remove one, if it still is what it was taken for."""
    if all(trace.leak != leak for trace in remains(directory, blobs=blobs)):
        return False
    path = directory / leak.name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return True


def _traces(directory: Path, kind: LeakKind, paths: Iterator[Path]) -> Iterator[Trace]:
    for path in paths:
        try:
            age_ns = time.time_ns() - path.stat().st_ctime_ns
        except FileNotFoundError:
            continue  # its maker was about it just now
        leak = Leak(kind, str(path.relative_to(directory)), age_ns=age_ns)
        yield Trace(leak, owner=None)


def _has_bundle(directory: Path, name: str) -> bool:
    return any((directory / folder / name).exists() for folder in _BUNDLES)
