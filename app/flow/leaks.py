"""What nobody owns any more: found, and made away with. What is in use, young, or not ours is never touched.

A look says what is a leak; a caller that comes by regularly mends what `confirmed` says of two looks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import suppress

from app.domain.leak import GRACE_NS, Leak, LeakKind, Trace, is_old_enough
from app.domain.trial import trial_goes_on
from app.errors import Unavailable
from app.flow._claimed import ring_after
from app.flow._older import unknown
from app.ports import HostPorts, Ports
from app.ports.leaks import RowLeaks, Traces


def on_host(
    ports: Ports, host: HostPorts, traces: Traces, spared: frozenset[str] = frozenset()
) -> frozenset[Leak]:
    """Machines, bundles and their traces on this host that no row owns. Raises Unavailable without the rows.

    `spared` are bundles from before a restore of the database. A machine that lives by an attempt of which the database
    knows nothing is no leak either: it shows that the database went back.
    """
    names, bundles = set(host.machines.known()), set(host.bundles.known())
    own = _own_mounts(host)
    seen = [each for each in traces.found() if not _is_mount_of(each, own)]
    # The rows are read after the lists: what was made in between is not taken for a leak.
    owned = {claimed.attempt.attempt_id for claimed in ports.attempts.held_by(host.host_id)}
    kept = ports.snapshots.bundle_ids()
    now_ns = ports.clock.boot_ns()
    in_use = owned | {
        each
        for each in _owners(seen, names) - owned
        if trial_goes_on(each, now_ns) or _is_open(ports, each)
    }
    # Whatever is mounted in a directory goes before it, or the directory's removal would go on into it.
    busy = {trace.owner for trace in seen if trace.leak.kind is LeakKind.MOUNT}
    in_use |= unknown(ports, host, frozenset(owned))
    return frozenset(
        [
            *(Leak(LeakKind.MACHINE, name) for name in names - in_use - busy),
            *(Leak(LeakKind.BUNDLE, bundle_id) for bundle_id in bundles - kept - busy - spared),
            *_left_over(ports, seen, in_use | kept | spared, names),
        ]
    )


def mend_on_host(host: HostPorts, traces: Traces, leak: Leak) -> bool:
    """Make away with a leak of this host; False if nothing of it could be done."""
    match leak.kind:
        case LeakKind.MACHINE:
            host.machines.kill(leak.name)
            host.guest.close(leak.name)
            host.machines.forget(leak.name)
        case LeakKind.BUNDLE:
            host.bundles.delete(leak.name)
        case _:
            return traces.remove(leak)
    return True


def in_deployment(rows: RowLeaks, queue: Traces) -> frozenset[Leak]:
    """Rows, and keys of the queue, that nobody owns. Without the queue its keys are left out."""
    found = set(rows.found())
    with suppress(Unavailable):
        found |= {trace.leak for trace in queue.found()}
    return frozenset(found)


def of_blobs(ports: Ports, rows: RowLeaks, uploads: Traces | None = None) -> frozenset[Leak]:
    """Bytes that no row names, and where they are kept in a bucket what is left of `uploads` into it. This reads all
    rows that could name them, so it is not done often. After a restore of the database what was put before it is none
    for a while: rows that are lost may have named it.
    """
    old = ports.blobs.older_than(GRACE_NS[LeakKind.BLOB]) - _before_a_restore(ports, rows)
    # Rows after blobs, as above; bytes that are asked for meanwhile are young again.
    named = rows.blobs_named() if old else frozenset()
    begun = () if uploads is None else uploads.found()
    remains = {trace.leak for trace in begun if is_old_enough(trace.leak.kind, trace.age_ns)}
    return frozenset(Leak(LeakKind.BLOB, sha256) for sha256 in old - named) | remains


def _before_a_restore(ports: Ports, rows: RowLeaks) -> frozenset[str]:
    now, now_ns = ports.deployments.now(), rows.now_ns()
    if not now.restored_within(ports.limits.restored_grace_ns, now_ns):
        return frozenset()
    return ports.blobs.older_than(max(0, now_ns - now.since_ns))


def mend_in_deployment(
    ports: Ports, rows: RowLeaks, queue: Traces, leak: Leak, uploads: Traces | None = None
) -> bool:
    """Make away with a leak of the deployment; False if nothing of it could be done."""
    match leak.kind:
        case LeakKind.BLOB_REMAINS:
            return uploads is not None and uploads.remove(leak)
        case LeakKind.BLOB:
            return ports.blobs.delete_older(leak.name, GRACE_NS[LeakKind.BLOB])
        case LeakKind.REDIS_KEY:
            return queue.remove(leak)
        case LeakKind.OVERDUE_ATTEMPT:
            return _close_by_time(ports, leak.name)
        case _:
            return rows.mend(leak)


def _owners(seen: Iterable[Trace], names: Iterable[str]) -> set[str]:
    return {*names, *(trace.owner for trace in seen if trace.owner is not None)}


def _own_mounts(host: HostPorts) -> frozenset[str]:
    """Bundles that are mounted where they are kept: `delete` takes the mount away first."""
    return frozenset(host.bundles.mounted()) if host.bundles.stores_elsewhere else frozenset()


def _is_mount_of(trace: Trace, owners: Container[str]) -> bool:
    return trace.leak.kind is LeakKind.MOUNT and trace.owner in owners


def _left_over(
    ports: Ports, seen: Iterable[Trace], in_use: Container[str], names: Container[str]
) -> Iterable[Leak]:
    """Traces whose owner is gone. Those of a machine whose home is still here go with it."""
    for trace in seen:
        if trace.owner in in_use:
            continue
        if trace.owner in names and trace.leak.kind is not LeakKind.MOUNT:
            continue
        if not is_old_enough(trace.leak.kind, trace.age_ns):
            continue
        if trace.leak.kind is LeakKind.CONTROL_GROUP and not _was_ours(ports, trace.owner or ""):
            continue
        yield trace.leak


def _is_open(ports: Ports, name: str) -> bool:
    """Of a host that has this directory under another name: whoever looks was started with other settings."""
    known = ports.attempts.get(name)
    return known is not None and known.attempt.closed_boot_ns is None


def _was_ours(ports: Ports, name: str) -> bool:
    """All stacks of a host make their groups in one place: ours are those of our attempts, and of nobody's test."""
    known = ports.attempts.get(name)
    return known is not None and known.attempt.closed_boot_ns is not None


def _close_by_time(ports: Ports, attempt_id: str) -> bool:
    closed = ports.attempts.close_by_time(
        attempt_id, "its host did not report its end, and its lease is long over"
    )
    if closed is not None:
        ring_after(ports, closed)
    return closed is not None
