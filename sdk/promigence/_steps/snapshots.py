"""The steps of snapshots, builds and hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from promigence._protocol import MAX_WAIT_SECONDS, Request, expect, path_of, query_of
from promigence._steps.calls import Steps, Terms, call, call_for, pages, pause_before_next, poll
from promigence.errors import (
    BuildFailed,
    DeadlineExceeded,
    SnapshotRefused,
    WaitTimeout,
)
from promigence.types import Build, Deleted, Host, Snapshot

WATCH_SECONDS = 5.0
FINAL = frozenset({"verified", "refused", "failed", "cancelled"})
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Packed:
    """One entry of a definition's `files`: a tar on this machine, and the guest directory that it is unpacked under."""

    tar: Path
    sha256: str
    guest_path: str


def begin(
    definition: Mapping[str, Any], packed: Sequence[Packed], key: str, terms: Terms
) -> Steps[Build]:
    """Upload what the server has not got, then ask for the build."""
    for one in packed:
        yield from _offer(one, terms)
    files = [{"guest_path": one.guest_path, "sha256": one.sha256} for one in packed]
    body = {"definition": dict(definition), "files": files}
    request = Request("POST", path_of("snapshots"), json=body, idempotency_key=key)
    return (yield from call_for(request, Build, terms))


def rebuild(name: str, spend_cap: float | None, key: str, terms: Terms) -> Steps[Build]:
    """Ask for a build of what a stored version was built of."""
    body = {} if spend_cap is None else {"spend_cap": spend_cap}
    request = Request("POST", path_of("snapshots", name, "rebuild"), json=body, idempotency_key=key)
    return call_for(request, Build, terms)


def follow(
    build_id: str, on_progress: Callable[[Build], None] | None, terms: Terms
) -> Steps[Snapshot]:
    """Follow a build to its end; its snapshot. Raises SnapshotRefused, BuildFailed, WaitTimeout (the build goes on)."""
    build = yield from _to_the_end(build_id, on_progress, terms)
    name = build["snapshot"]
    if build["state"] != "verified" or name is None:
        _raise_for(build)
    return (yield from get(name, terms))


def get_build(build_id: str, terms: Terms) -> Steps[Build]:
    return call_for(Request("GET", path_of("builds", build_id)), Build, terms)


def get(name: str, terms: Terms) -> Steps[Snapshot]:
    return call_for(Request("GET", path_of("snapshots", name)), Snapshot, terms)


def every(stale: bool, limit: int | None, terms: Terms) -> Steps[list[Snapshot]]:
    request = Request("GET", path_of("snapshots"), query_of(stale=True if stale else None))
    return pages(request, "snapshots", Snapshot, limit, terms)


def warm(name: str, hosts: int, terms: Terms) -> Steps[Snapshot]:
    """Keep it mounted on so many hosts; on none that is asked for any more with 0."""
    path = path_of("snapshots", name, "warm")
    if hosts == 0:
        return call_for(Request("DELETE", path), Snapshot, terms)
    return call_for(Request("PUT", path, json={"hosts": hosts}), Snapshot, terms)


def delete(name: str, terms: Terms) -> Steps[Deleted]:
    return call_for(Request("DELETE", path_of("snapshots", name)), Deleted, terms)


def hosts(terms: Terms) -> Steps[list[Host]]:
    return pages(Request("GET", path_of("hosts")), "hosts", Host, None, terms)


def _offer(one: Packed, terms: Terms) -> Steps[None]:
    path = path_of("files", one.sha256)
    answer = yield from call(Request("HEAD", path, also=frozenset({NOT_FOUND})), terms)
    if answer.status == NOT_FOUND:
        yield from call(Request("PUT", path, upload=one.tar), terms)


def _to_the_end(
    build_id: str, on_progress: Callable[[Build], None] | None, terms: Terms
) -> Steps[Build]:
    every_seconds = MAX_WAIT_SECONDS if on_progress is None else WATCH_SECONDS
    clock = terms.deadline.clock
    seen = 0
    after = 0.0
    while True:
        request = Request("GET", path_of("builds", build_id), query_of(after=seen))
        begun = clock() + after
        try:
            answer = yield from poll(request, every_seconds, terms, after)
        except DeadlineExceeded as late:
            raise _goes_on(build_id) from late
        build = expect(answer, Build)
        build["log"] = [line for line in build["log"] if line["n"] > seen]
        seen = max((line["n"] for line in build["log"]), default=seen)
        if on_progress is not None:
            on_progress(build)
        if build["state"] in FINAL:
            return build
        after = pause_before_next(begun, every_seconds, clock)


def _goes_on(build_id: str) -> WaitTimeout:
    return WaitTimeout(
        f"build {build_id} has not ended yet and goes on; wait for it again",
        details={"build_id": build_id},
    )


def _raise_for(build: Build) -> NoReturn:
    told = build["error"] or {}
    kind = SnapshotRefused if build["state"] == "refused" else BuildFailed
    details = told.get("details")
    raise kind(
        str(told.get("message") or f"build {build['build_id']} ended {build['state']}"),
        code=told.get("code"),
        details={
            **(details if isinstance(details, dict) else {}),
            "build_id": build["build_id"],
            "state": build["state"],
        },
    )
