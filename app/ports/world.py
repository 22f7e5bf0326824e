"""What the product needs of the world: small protocols, each docstring a contract.

Adapters live in `infra/`; `infra/conformance.py` holds each contract as runnable checks, for fakes and real ones.
A port raises only errors of `app/errors.py`; a fault of an environment is `EnvironmentFault`, with what was seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from app.domain.attribution import Strain, Vitals
from app.domain.machine import (
    Awake,
    BootImage,
    Bundle,
    Command,
    CommandEnd,
    Deadline,
    Death,
    Fingerprint,
    Handle,
    Identity,
    MonitorEvent,
    Probe,
    RestoreKey,
    Shape,
)
from app.errors import EnvironmentFault


class Clock(Protocol):
    """Two clocks, never mixed: one to measure with, one for people."""

    def boot_ns(self) -> int:
        """This host's boot-time clock (CLOCK_BOOTTIME), which counts suspended time too."""
        ...

    def wall_ns(self) -> int:
        """Wall clock, ns since the epoch. For people and for guests; nothing is decided by it."""
        ...

    def boot_id(self) -> str:
        """Identity of this host's boot: readings of `boot_ns` compare only within one."""
        ...

    def pause(self, seconds: float) -> None:
        """Return when that much time has passed."""
        ...


class Machines(Protocol):
    """The virtual machines of this host, by name. One name is one machine's life; names are never used again."""

    def fingerprint(self) -> Fingerprint:
        """What this host can do; a probe has booted something before KVM is believed in."""
        ...

    def prove(self, key: RestoreKey | None = None) -> None:
        """Boot the guest's own kernel to its first process, as forks run here, and end it: nothing of it is left.

        By the hypervisor of a restore key, or without one by each that this host has. Raises
        EnvironmentFault(restore_failed) with what was seen instead, EnvironmentFault(snapshot_unavailable) for a key
        that this host has not.
        """
        ...

    def boot(self, name: str, image: BootImage, shape: Shape, deadline: Deadline) -> Handle:
        """Cold-boot a template on its own copy of the root disk, with RAM in a file that `freeze` can keep.

        Returns when the process runs and its monitor answers. Raises EnvironmentFault(restore_failed,
        snapshot_unavailable, host_disk_full), also when `deadline.start_by_boot_ns` has passed; then nothing is left.
        """
        ...

    def freeze(self, name: str, into: Path, boot_id: str) -> Bundle:
        """Stop a quiet template and keep memory, device state and disks together in the new folder `into`, read-only.

        `boot_id` is the guest's, as `Guest.quiesce` returned it. The template is gone afterwards. The
        bundle's id is the name of `into`; it has a manifest with the sha256 of every 2 MiB chunk.
        Raises EnvironmentFault(guest_lost, restore_failed, host_disk_full).
        """
        ...

    def restore(self, name: str, bundle: Bundle, deadline: Deadline) -> Handle:
        """Fork a machine from a bundle: memory mapped privately, a fresh overlay on its disk, state loaded, running.

        The guest waits in its barrier. Raises EnvironmentFault(restore_failed, snapshot_unavailable, snapshot_corrupt,
        host_disk_full); then nothing is left of it. A bundle whose key is none of this host's is snapshot_unavailable.
        """
        ...

    def extend(self, name: str, deadline_boot_ns: int) -> None:
        """Move a machine's deadline (its keeper kills at it). Silent when the machine is gone."""
        ...

    def kill(self, name: str) -> Death | None:
        """End a machine and wait until its process is gone. Twice is safe; None when nothing is known of the name."""
        ...

    def death(self, name: str) -> Death | None:
        """How a machine ended, as its keeper recorded it; None while it lives or when nothing is known of it."""
        ...

    def events(self, name: str) -> tuple[MonitorEvent, ...]:
        """The last monitor events (64 at most), oldest first; kept after its end until `forget`."""
        ...

    def console_tail(self, name: str) -> str:
        """The last 4 KiB of the guest's console, control characters removed."""
        ...

    def vitals(self, name: str) -> Vitals:
        """One look at a machine's process, also at one that is gone or was never known; at one that was ended by
        `kill`, the last before that.
        """
        ...

    def mark(self, name: str, exec_id: str) -> None:
        """Keep a look at a machine as it is now, beside it: a command is about to start. Of a command that had not
        started and is started once more, the last mark counts.
        """
        ...

    def marked(self, name: str, exec_id: str) -> bool:
        """Whether a command's mark is there: it may have started, whatever a database says that was put back since."""
        ...

    def strain(self, name: str, exec_id: str) -> Strain:
        """What its host took from a machine since a command's mark; since its start where there is none."""
        ...

    def recover(self, name: str) -> Handle | None:
        """Re-attach to a machine that an earlier worker process started; None when it is gone."""
        ...

    def live(self) -> tuple[Handle, ...]:
        """Every machine of this host that lives now, whoever started it."""
        ...

    def known(self) -> tuple[str, ...]:
        """Names of all machines, live or dead, whose files are still here."""
        ...

    def forget(self, name: str) -> None:
        """Remove all files of a dead machine. Twice is safe."""
        ...


class GuestEvents(Protocol):
    """Who hears what guests say by themselves; called on the channel's own thread, must return at once."""

    def ended(self, name: str, exec_id: str) -> None:
        """A command of this machine ended."""
        ...

    def lost(self, name: str) -> None:
        """The control channel of this machine broke: find out why."""
        ...


class Guest(Protocol):
    """Inside a machine: its barrier, commands and files, over channels of the machine; by machine name.

    One process owns a machine's channels at a time. A machine that is gone in any of these calls raises
    EnvironmentFault(guest_lost), one that does not answer EnvironmentFault(guest_hung).
    """

    def attach(self, name: str, *, booted_within_s: float | None = None) -> None:
        """Take the control channel; with `booted_within_s`, wait for a booting machine's hello. Twice is safe."""
        ...

    def wake(self, name: str, identity: Identity, timeout_s: float) -> Awake:
        """Pass the barrier. The host key is made here and remembered: `open` accepts no other.

        Raises EnvironmentFault(barrier_failed) on no answer or an answer with another nonce.
        """
        ...

    def ping(self, name: str, timeout_s: float) -> None:
        """The guest answers on the control channel."""
        ...

    def open(self, name: str, timeout_s: float) -> None:
        """Open the command channel (SSH) once and keep it. Twice is safe."""
        ...

    def probe(self, name: str, marker: str, exit_code: int, timeout_s: float) -> Probe:
        """Run the tools disk's static `probe` in the image's root, over the command channel; leave no trace there.

        It writes and reads back `/.promigence-marker-<marker>` on the root disk, lists markers of others, removes its
        own, reads the root disk's recorded id and the network interfaces, tries a target that is never allowed
        (192.0.2.1:9 directly, and by the proxy if there is one), and ends with `exit_code`.
        """
        ...

    def start(self, name: str, exec_id: str, command: Command) -> None:
        """Start a command under an id; returns when the guest has journalled its start. Never starts one id twice.

        Raises EnvironmentFault(exec_not_started) if it is known not to run (no such cwd or user included:
        the message says).
        """
        ...

    def end(self, name: str, exec_id: str, wait_s: float = 0.0) -> CommandEnd | None:
        """How a command ended, or None if it runs still after `wait_s`. Reads the guest's journal if this process did
        not hear the end itself. Raises EnvironmentFault(exec_not_started) for an id that the guest does not know."""
        ...

    def output(self, name: str, exec_id: str, stream: str, start: int, limit_bytes: int) -> bytes:
        """What a running command has printed so far to `stdout` or `stderr`, from byte `start`, at most so many bytes.

        Raises NotFound when there is none to show: it runs no more, it has printed more than is kept, or the guest's
        tools are of a time before this could be asked for.
        """
        ...

    def interrupt(self, name: str, exec_id: str) -> None:
        """Kill every process of a command; it then ends. Silent when it has ended."""
        ...

    def result(self, name: str, exec_id: str, limit_bytes: int) -> bytes | None:
        """What a grade that ended wrote to its result file; None if it wrote none. Twice is safe.

        Raises TooLarge, BadRequest(not_a_file) for what is no regular file of the directory made for this grade.
        """
        ...

    def upload(self, name: str, source: BinaryIO, guest_path: str, mode: int = 0o644) -> int:
        """Write a file (parents made) as root; bytes written. Raises BadRequest for a path that cannot be written."""
        ...

    def download(self, name: str, guest_path: str, sink: BinaryIO, limit_bytes: int) -> int:
        """Read a file; bytes read. Raises NotFound, BadRequest (a directory), TooLarge (over the limit)."""
        ...

    def unpack(self, name: str, tar: BinaryIO, guest_path: str) -> None:
        """Unpack an uncompressed tar under a directory (made if need be), owned by root."""
        ...

    def allow(self, name: str, targets: tuple[str, ...]) -> None:
        """Let the guest reach these `host:port` through an HTTP proxy on its own 127.0.0.1:3128, and nothing else.

        Checked again at each connection, by address. Empty closes it. Refusals are kept for `egress_log`.
        """
        ...

    def egress_log(self, name: str) -> tuple[dict[str, str], ...]:
        """The last 64 faults and refusals of this machine's proxy: target, what, at."""
        ...

    def quiesce(self, name: str) -> str:
        """Make a template ready to be frozen: no SSH, user processes frozen, disks synced. Returns its boot_id."""
        ...

    def close(self, name: str) -> None:
        """Give up the channels of a machine. Twice is safe."""
        ...


class Bundles(Protocol):
    """Frozen machines as stored things. Local folder embedded; EBS snapshots in the account."""

    @property
    def stores_elsewhere(self) -> bool:
        """Whether a stored bundle is more than this host's copy of it, so that any host of the deployment can mount it
        and this one may give its copy up.
        """
        ...

    def staging(self, bundle_id: str) -> Path:
        """A path for a new bundle's directory, not made yet; an earlier staged one of that id is removed."""
        ...

    def watch(self, bundle_id: str) -> None:
        """Notice from now on what is read of a staged bundle, by whichever process: its first forks are about to run.

        Never fails: a host that cannot tell notices nothing.
        """
        ...

    def record(self, bundle_id: str) -> int:
        """Keep with a staged bundle what was read of it since `watch`: wherever it is mounted, that is read first, and
        checked before the first fork. How many bytes that is; 0 where nothing was noticed. Never fails; twice is safe.
        """
        ...

    def store(self, bundle_id: str) -> Bundle:
        """Keep a staged bundle for good; returns it as it is restored from what was stored, every chunk of that
        checked. Stored already: the bundle as it is. May take minutes; after a crash the next call goes on.

        Raises EnvironmentFault(snapshot_corrupt, snapshot_unavailable, host_disk_full); then nothing of the attempt is
        left, and the staged bundle is as it was.
        """
        ...

    def mount(self, bundle_id: str) -> None:
        """Make a stored or staged bundle warm on this host: `open` then has it. May take minutes; after a crash the
        next call goes on. Twice is safe, from several processes too.

        Raises EnvironmentFault(snapshot_unavailable, snapshot_corrupt, host_disk_full); then nothing of it is left.
        """
        ...

    def open(self, bundle_id: str) -> Bundle:
        """A bundle that is warm on this host, ready to fork from; what a fork needs at once is checked at its
        first use since the host's boot, or since a file of it changed, and no fork waits for more.

        Raises EnvironmentFault(snapshot_unavailable, snapshot_corrupt): the former also where it would have to be
        mounted first, the latter when its manifest or that check does not hold, or what `read` found did not.
        """
        ...

    def unread(self) -> tuple[str, ...]:
        """Ids of the bundles opened here of which not every byte was checked since the host's boot or their change."""
        ...

    def read(self, bundle_id: str) -> None:
        """Check every byte; a bundle that does not hold is refused from then on, and stays where it is.

        Raises EnvironmentFault(snapshot_corrupt, snapshot_unavailable). Slow: it leaves the host to its forks.
        """
        ...

    def refused(self) -> tuple[tuple[str, EnvironmentFault], ...]:
        """Bundles that are not forked from any more, each with what was found."""
        ...

    def mounted(self) -> tuple[str, ...]:
        """Ids of the bundles that are warm on this host, the one that was not opened for longest first."""
        ...

    def known(self) -> tuple[str, ...]:
        """Ids of all bundles of which something is here, also of those that were never finished."""
        ...

    def evict(self, bundle_id: str) -> bool:
        """Give up this host's copy of a stored bundle; whether it is not here any more. False: a machine runs on it, or
        it cannot be had again from elsewhere. Twice is safe.
        """
        ...

    def release(self) -> None:
        """Evict all that can be: this host is taken down on purpose. Twice is safe."""
        ...

    def tidy(self) -> None:
        """Give up what an attempt to mount or to evict left half done on this host. Twice is safe, at any time."""
        ...

    def delete(self, bundle_id: str) -> None:
        """Remove a stored or staged bundle, here and elsewhere. Twice is safe. A machine that runs on this host's copy
        keeps that until it has ended; the next call goes on.

        Raises Unavailable and CloudRefused where what is elsewhere could not be removed; `known` names it still.
        """
        ...


class Images(Protocol):
    """Base images that the server knows, as root disks."""

    def names(self) -> tuple[str, ...]:
        """The names that a definition may use."""
        ...

    def boot_image(self, name: str) -> BootImage:
        """Raises BadRequest(unknown_image) with the names there are."""
        ...


class Blobs(Protocol):
    """Bytes by their sha256, shared by API and hosts."""

    def put(self, source: BinaryIO, *, expect: str | None, limit_bytes: int) -> tuple[str, int]:
        """Keep bytes; returns (sha256, size). Raises BadRequest(hash_mismatch), TooLarge. Twice is safe."""
        ...

    def open(self, sha256: str) -> BinaryIO:
        """Raises NotFound."""
        ...

    def has(self, sha256: str) -> bool:
        """Whether the bytes are here. If so they are young again, as after `put`: who asks is about to name them."""
        ...

    def older_than(self, age_ns: int) -> frozenset[str]:
        """The sha256 of bytes that nobody has put or asked for since."""
        ...

    def delete_older(self, sha256: str, age_ns: int) -> bool:
        """Forget bytes unless they are young again; whether they were forgotten."""
        ...

    def delete(self, sha256s: Iterable[str]) -> None:
        """Forget bytes. Twice is safe."""
        ...
