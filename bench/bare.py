"""The bare mechanism, as anyone would write it in a page: what the product is measured against.

A QEMU started and its state loaded by its monitor, the barrier's line said and its answer read; and paramiko on the
machine's port, with nothing around it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import paramiko

from app.domain.machine import Bundle
from bench.rig import ANSWER_TIMEOUT_S, Rig
from infra.guest import wire
from infra.guest.hostkey import make_host_key
from infra.qemu.argv import Descriptors, fdset, fork_argv
from infra.qemu.home import Home, connect, listen


def barrier_s(rig: Rig, bundle: Bundle, name: str) -> float:
    """Seconds from nothing to the answer at the barrier."""
    with _home(rig, name) as home:
        key_file, _ = make_host_key()
        told = wire.wake(rig.identity(name), key_file, rig.clock.wall_ns())
        started = time.perf_counter()
        with _running(rig, bundle, home), connect(home.control, ANSWER_TIMEOUT_S) as control:
            answer = _ask(control, told)
            seconds = time.perf_counter() - started
        if not answer.startswith(b"AWAKE "):
            raise RuntimeError(f"the guest answered {answer!r}")
        return seconds


@contextmanager
def channel(rig: Rig, bundle: Bundle, name: str) -> Iterator[paramiko.Transport]:
    """An open transport to a fresh fork of the bundle; the machine is the product's, all that speaks to it is not."""
    rig.machines.restore(name, bundle, rig.deadline())
    home = Home(rig.root / name)
    with connect(home.control, ANSWER_TIMEOUT_S) as control:
        key_file, _ = make_host_key()
        _ask(control, wire.wake(rig.identity(name), key_file, rig.clock.wall_ns()))
        with connect(home.ssh, ANSWER_TIMEOUT_S) as ssh:
            _ask(control, wire.open_ssh(1))
            with closing(paramiko.Transport(ssh)) as transport:
                transport.start_client(timeout=ANSWER_TIMEOUT_S)
                transport.auth_none("root")
                yield transport
    rig.end(name)


def exec_s(transport: paramiko.Transport, command: str) -> float:
    """Seconds from asking for a command on an open transport to its exit status. Raises RuntimeError unless it is 0."""
    started = time.perf_counter()
    with closing(transport.open_session(timeout=ANSWER_TIMEOUT_S)) as session:
        session.exec_command(command)
        status = session.recv_exit_status()
    seconds = time.perf_counter() - started
    if status != 0:
        raise RuntimeError(f"{command!r} ended with {status}")
    return seconds


@contextmanager
def _home(rig: Rig, name: str) -> Iterator[Home]:
    """Not under the rig's root: the product's machines are there."""
    home = Home(rig.root.parent / name)
    home.directory.mkdir()
    try:
        yield home
    finally:
        shutil.rmtree(home.directory)


@contextmanager
def _running(rig: Rig, bundle: Bundle, home: Home) -> Iterator[None]:
    process, state = _spawn(rig, bundle, home)
    try:
        _load_state(home, state)
        yield
    finally:
        process.kill()
        process.wait()


def _spawn(rig: Rig, bundle: Bundle, home: Home) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and the number by which it knows the state file."""
    shutil.copyfile(bundle.directory / home.overlay.name, home.overlay)
    with ExitStack() as stack:

        def opened(path: Path, flags: int = os.O_RDONLY) -> int:
            fd = os.open(path, flags | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            return fd

        files = Descriptors(
            console=opened(Path("/dev/null"), os.O_WRONLY),
            monitor=stack.enter_context(listen(home.monitor)).fileno(),
            control=stack.enter_context(listen(home.control)).fileno(),
            ssh=stack.enter_context(listen(home.ssh)).fileno(),
            memory=opened(bundle.memory),
            state=opened(bundle.state),
            root=opened(bundle.root_disk),
            tools=opened(bundle.tools_disk),
            overlay=opened(home.overlay, os.O_RDWR),
        )
        argv = fork_argv(rig.means[0].hypervisor, home.name, bundle.shape, files)
        return subprocess.Popen(argv, pass_fds=files.numbers(), env={}), files.state


def _load_state(home: Home, state: int) -> None:
    ignore_memory = [{"capability": "x-ignore-shared", "state": True}]
    events = [{"capability": "events", "state": True}]
    with connect(home.monitor, ANSWER_TIMEOUT_S) as monitor, monitor.makefile("rwb") as lines:

        def execute(command: str, **arguments: object) -> None:
            lines.write(json.dumps({"execute": command, "arguments": arguments}).encode())
            lines.flush()
            while "return" not in (message := json.loads(lines.readline())):
                if "error" in message:
                    raise RuntimeError(f"{command}: {message}")

        lines.readline()
        execute("qmp_capabilities")
        execute("migrate-set-capabilities", capabilities=[*ignore_memory, *events])
        execute("migrate-incoming", uri=f"file:{fdset(state)}")
        while b"completed" not in lines.readline():
            pass
        execute("cont")


def _ask(control: socket.socket, line: bytes) -> bytes:
    with control.makefile("rb") as answers:
        control.sendall(line)
        return answers.readline()
