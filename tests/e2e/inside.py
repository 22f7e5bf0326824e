"""The inside of real machines for tests: a machine that is awake, and what a test does in it."""

from __future__ import annotations

import queue
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from app.domain.machine import Awake, BootImage, Bundle, Command, CommandEnd, Identity, Shape
from infra.egress import EgressProxy
from infra.guest import SshGuest
from infra.qemu.machines import QemuMachines

if TYPE_CHECKING:
    from tests.e2e.conftest import Host

BOOTED_WITHIN_S = 120.0
# Longer than any session of tests.
LEASE_S = 2 * 3600.0


class Heard:
    """What guests said by themselves."""

    def __init__(self) -> None:
        self._ends: queue.Queue[tuple[str, str]] = queue.Queue()
        self._losses: queue.Queue[str] = queue.Queue()

    def ended(self, name: str, exec_id: str) -> None:
        self._ends.put((name, exec_id))

    def lost(self, name: str) -> None:
        self._losses.put(name)

    def next_end(self, timeout_s: float) -> tuple[str, str]:
        """Raises queue.Empty."""
        return self._ends.get(timeout=timeout_s)

    def next_loss(self, timeout_s: float) -> str:
        """Raises queue.Empty."""
        return self._losses.get(timeout=timeout_s)


@dataclass(frozen=True, slots=True)
class Inside:
    """Machines in a directory of their own, and the adapter under test. `patience_s`: how long a test waits for what
    should come.
    """

    host: Host
    machines: QemuMachines
    machine_dir: Callable[[str], Path]
    guest: SshGuest
    heard: Heard
    patience_s: float

    @classmethod
    def of(cls, host: Host, root: Path, patience_s: float, egress: EgressProxy) -> Inside:
        """A worker's view of a host that has no machines yet."""
        heard = Heard()
        machines = QemuMachines(root, host.means, host.fingerprint, host.clock)
        guest = SshGuest(root.joinpath, heard, egress)
        return cls(host, machines, root.joinpath, guest, heard, patience_s)

    def boot(self, image: BootImage, shape: Shape) -> Machine:
        """A booted machine, awake."""
        name = new_name()
        self.machines.boot(name, image, shape, self.host.deadline(lease_s=LEASE_S))
        self.guest.attach(name, booted_within_s=BOOTED_WITHIN_S)
        return self._wake(name)

    def fork(self, bundle: Bundle) -> Machine:
        """A fork, awake."""
        name = new_name()
        self.machines.restore(name, bundle, self.host.deadline(lease_s=LEASE_S))
        self.guest.attach(name)
        return self._wake(name)

    def close(self) -> None:
        """End all machines and look for survivors."""
        for name in self.machines.known():
            self.machines.kill(name)
            self.guest.close(name)
            self.machines.forget(name)
        self.guest.shut_down()
        self.machines.close()
        assert self.machines.known() == ()

    def _wake(self, name: str) -> Machine:
        told = identity(name)
        return Machine(self, name, told, self.guest.wake(name, told, self.patience_s))


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine that has passed its barrier."""

    inside: Inside
    name: str
    told: Identity
    awake: Awake = field(repr=False)

    @property
    def guest(self) -> SshGuest:
        return self.inside.guest

    def start(self, sh: str, command: Command | None = None) -> str:
        """Start a line of shell, or a command; its id."""
        exec_id = new_name()
        self.guest.start(self.name, exec_id, command or shell(sh))
        return exec_id

    def end(self, exec_id: str) -> CommandEnd:
        """Wait for an end."""
        end = self.guest.end(self.name, exec_id, wait_s=self.inside.patience_s)
        assert end is not None, f"{exec_id} goes on and on"
        return end

    def run(self, sh: str, command: Command | None = None) -> CommandEnd:
        """Start and wait."""
        return self.end(self.start(sh, command))

    def says(self, sh: str) -> str:
        """What a line of shell prints; it must pass."""
        end = self.run(sh)
        assert end.exit_code == 0, end.stderr
        return end.stdout.decode().strip()


def shell(
    sh: str,
    *,
    timeout_s: float = 600.0,
    cwd: str | None = None,
    user: str | None = None,
    env: tuple[tuple[str, str], ...] = (),
    output_limit_bytes: int = 64 << 20,
) -> Command:
    """A line for the image's shell."""
    return Command(
        argv=("/bin/sh", "-c", sh),
        timeout_ns=int(timeout_s * 1e9),
        cwd=cwd,
        user=user,
        env=env,
        output_limit_bytes=output_limit_bytes,
    )


def identity(name: str) -> Identity:
    """A new one."""
    return Identity(
        fork_id=name,
        hostname=name,
        generation=str(uuid.uuid4()),
        machine_id=secrets.token_hex(16),
        nonce=secrets.token_hex(16),
        entropy=secrets.token_bytes(64),
    )


def new_name() -> str:
    """A name or an id that nothing has had."""
    return f"t{secrets.token_hex(5)}"
