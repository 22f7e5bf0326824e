"""The calls of the client about snapshots: built, rebuilt, kept warm, listed, deleted."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Literal, overload

from promigence._engine import Engine
from promigence._steps import snapshots
from promigence.definition import check, load, packed_files
from promigence.resources import FOREVER_SECONDS, TRANSFER_SECONDS
from promigence.types import Build, Definition, Deleted, Snapshot

__all__ = ["Snapshots"]


class Snapshots:
    """Verified environments, by name; a name points to immutable versions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @overload
    def build(
        self,
        definition: Definition | str | PathLike[str],
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        on_progress: Callable[[Build], None] | None = None,
        idempotency_key: str | None = None,
    ) -> Snapshot: ...

    @overload
    def build(
        self,
        definition: Definition | str | PathLike[str],
        *,
        wait: Literal[False],
        timeout: float | None = None,
        on_progress: Callable[[Build], None] | None = None,
        idempotency_key: str | None = None,
    ) -> str: ...

    def build(
        self,
        definition: Definition | str | PathLike[str],
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_progress: Callable[[Build], None] | None = None,
        idempotency_key: str | None = None,
    ) -> Snapshot | str:
        """Build and verify a snapshot from a definition (a dict, or the path of its TOML).

        Local paths in `files` are relative to the TOML, or to the working directory. Returns the verified snapshot;
        with `wait=False` the build's id, once its files are uploaded. `on_progress` gets the build at each change.

        Raises BadDefinition; SnapshotRefused with the check and its output in `details`; BuildFailed; WaitTimeout after
        `timeout` seconds (None: no limit) of waiting, while the build goes on.
        """
        build = self._begin(definition, idempotency_key or _new_key())
        if not wait:
            return build["build_id"]
        return self.wait(build["build_id"], timeout, on_progress=on_progress)

    @overload
    def rebuild(
        self,
        name: str,
        *,
        spend_cap: float | None = None,
        wait: Literal[True] = True,
        timeout: float | None = None,
        on_progress: Callable[[Build], None] | None = None,
        idempotency_key: str | None = None,
    ) -> Snapshot: ...

    @overload
    def rebuild(
        self,
        name: str,
        *,
        spend_cap: float | None = None,
        wait: Literal[False],
        timeout: float | None = None,
        on_progress: Callable[[Build], None] | None = None,
        idempotency_key: str | None = None,
    ) -> str: ...

    def rebuild(
        self,
        name: str,
        *,
        spend_cap: float | None = None,
        wait: bool = True,
        timeout: float | None = None,
        on_progress: Callable[[Build], None] | None = None,
        idempotency_key: str | None = None,
    ) -> Snapshot | str:
        """Build and verify anew what a stored version was built of, with the files and commands that it kept.

        It becomes the newest version of its name when it has verified; so `rebuild("name@3")` brings that version's
        definition back. Its `provenance["rebuilt_from"]` says of what, and what differs (image, kernel, tools, key).
        `spend_cap` in the place of the definition's own. Returns as `build` does.

        Raises what `build` raises of a build; NotFound; Conflict (`files_gone`, `image_gone`: `details` say which).
        """
        key = idempotency_key or _new_key()
        steps = snapshots.rebuild(name, spend_cap, key, self._engine.terms())
        build_id = self._engine.run(steps)["build_id"]
        return self.wait(build_id, timeout, on_progress=on_progress) if wait else build_id

    def wait(
        self,
        build_id: str,
        timeout: float | None = None,
        *,
        on_progress: Callable[[Build], None] | None = None,
    ) -> Snapshot:
        """Follow a build to its end. Returns and raises as `build` does."""
        terms = self._engine.terms(FOREVER_SECONDS if timeout is None else timeout)
        return self._engine.run(snapshots.follow(build_id, on_progress, terms))

    def get_build(self, build_id: str) -> Build:
        """A build as it stands, with its log."""
        return self._engine.run(snapshots.get_build(build_id, self._engine.terms()))

    def get(self, name: str) -> Snapshot:
        """A snapshot: `name` the version that the name points to, `name@3` that one."""
        return self._engine.run(snapshots.get(name, self._engine.terms()))

    def list(self, *, stale: bool = False, limit: int | None = 100) -> list[Snapshot]:
        """The stored versions by name, newest first: the first `limit` of them, or all with None.

        With `stale` only those that no host can restore now; each says in `restore` what it needs, what there is, and
        why. What is `unreachable` among them may come back with a host; what is `stale` wants a `rebuild`.
        """
        return self._engine.run(snapshots.every(stale, limit, self._engine.terms()))

    def warm(self, name: str, hosts: int) -> Snapshot:
        """Keep a snapshot mounted on at least so many hosts (1000 at most), so that its forks wait for no mount.

        A bare name follows its newest version, `name@3` stays. It replaces what was asked for before; 0 ends it. The
        answer's `warm` says how far it is met. Raises NotFound, BadRequest for a number that will not do.
        """
        return self._engine.run(snapshots.warm(name, hosts, self._engine.terms()))

    def delete(self, name: str) -> Deleted:
        """Delete one version (`name@3`) or all (`name`).

        Raises Conflict (`snapshot_in_use`) while a live run needs it.
        """
        return self._engine.run(snapshots.delete(name, self._engine.terms()))

    def _begin(self, definition: Definition | str | PathLike[str], key: str) -> Build:
        if isinstance(definition, str | PathLike):
            path = Path(definition)
            checked, base = load(path), path.parent
        else:
            checked, base = check(definition), Path.cwd()
        bare = {name: value for name, value in checked.items() if name != "files"}
        with tempfile.TemporaryDirectory(prefix="promigence-") as staging:
            packed = packed_files(checked, base, Path(staging))
            terms = self._engine.terms(TRANSFER_SECONDS)
            return self._engine.run(snapshots.begin(bare, packed, key, terms))


def _new_key() -> str:
    return str(uuid.uuid4())
