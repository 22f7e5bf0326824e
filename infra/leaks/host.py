"""`Traces` of this host: processes, kernel objects and files of this stack beside its machines and bundles."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from app.domain.leak import Leak, LeakKind, Trace
from infra.leaks import files, kernel, processes


class HostTraces:
    """Of the stack that keeps what is its own in `directory`. `keeper` is the program that its machines run under.

    `pids` are the processes of ours whose open files are looked at; without it, this one. `blobs`: they are kept in
    this directory, and not elsewhere.
    """

    def __init__(
        self,
        directory: Path,
        keeper: Path,
        pids: Iterable[int] | None = None,
        *,
        blobs: bool = True,
    ) -> None:
        self._directory = directory
        self._machines = directory / "machines"
        self._bundles = directory / "bundles"
        self._keeper = keeper
        self._blobs = blobs
        self._pids = (os.getpid(),) if pids is None else tuple(pids)

    def found(self) -> tuple[Trace, ...]:
        """Everything that lies about now."""
        return tuple(self._found())

    def remove(self, leak: Leak) -> bool:
        """Make away with one; False if it is gone, is something else by now, or cannot be."""
        match leak.kind:
            case LeakKind.PROCESS:
                return processes.end(self._machines, self._keeper, leak)
            case LeakKind.MOUNT:
                return kernel.unmount(self._roots, leak.name)
            case LeakKind.LOOP_DEVICE:
                return kernel.detach(self._roots, leak)
            case LeakKind.CONTROL_GROUP:
                return kernel.remove_group(leak.name)
            case LeakKind.BUNDLE_REMAINS | LeakKind.BLOB_REMAINS:
                return files.remove(self._directory, leak, blobs=self._blobs)
            case _:
                return False

    @property
    def _roots(self) -> tuple[Path, ...]:
        """Below these, the part of a path that comes next is the machine's or bundle's name."""
        folders = (self._bundles / name for name in ("stored", "staged", "writing"))
        return (self._machines, *folders)

    def _found(self) -> Iterator[Trace]:
        yield from processes.strays(self._machines, self._keeper)
        yield from processes.deleted_files(self._roots, self._pids)
        yield from kernel.mounts(self._roots)
        yield from kernel.loops(self._roots)
        yield from kernel.groups()
        yield from files.remains(self._directory, blobs=self._blobs)
