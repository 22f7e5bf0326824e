"""The inside of fake machines."""

from __future__ import annotations

import secrets
import threading
from typing import BinaryIO

from app.domain.machine import Awake, Command, CommandEnd, Identity, Probe
from app.errors import BadRequest, EnvironmentFault, FailureKind, NotFound, TooLarge
from infra.fakes.clock import ManualClock
from infra.fakes.world import TICK_S, Box, World


class FakeGuest:
    """`Guest` over a World. With a ManualClock, waiting moves the clock; with the system's, it waits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tick = threading.Event()

    def attach(self, name: str, *, booted_within_s: float | None = None) -> None:
        with self._world.step("attach", name):
            self._world.box(name).attached = True

    def wake(self, name: str, identity: Identity, timeout_s: float) -> Awake:
        with self._world.step("wake", name):
            box = self._world.box(name)
            box.identity = identity
            awake = self._world.answer("wake", name, self._awake(name, box, identity))
        if awake.nonce != identity.nonce:
            raise EnvironmentFault(
                FailureKind.BARRIER_FAILED, "the answer is to another nonce", nonce=awake.nonce
            )
        return awake

    def _awake(self, name: str, box: Box, identity: Identity) -> Awake:
        wall_ns = self._world.clock.wall_ns()
        return Awake(
            nonce=identity.nonce,
            boot_id=box.boot_id,
            sample=self._world.samples.get(name) or secrets.token_hex(16),
            guest_wall_ns=wall_ns,
            host_wall_ns=wall_ns,
            hostname=identity.hostname,
            machine_id=identity.machine_id,
            host_key_sound=True,
            reseeded=True,
        )

    def ping(self, name: str, timeout_s: float) -> None:
        self._world.box(name)

    def open(self, name: str, timeout_s: float) -> None:
        with self._world.step("open", name):
            self._world.box(name)

    def probe(self, name: str, marker: str, exit_code: int, timeout_s: float) -> Probe:
        with self._world.step("probe", name):
            seen = Probe(exit_code, self._world.box(name).disk_id, marker, (), ("lo",), False)
            return self._world.answer("probe", name, seen)

    def start(self, name: str, exec_id: str, command: Command) -> None:
        with self._world.step("start", name):
            self._world.run(name, exec_id, command)

    def end(self, name: str, exec_id: str, wait_s: float = 0.0) -> CommandEnd | None:
        with self._world.step("end", name):
            return self._end(name, exec_id, wait_s)

    def _end(self, name: str, exec_id: str, wait_s: float) -> CommandEnd | None:
        clock = self._world.clock
        until_ns = clock.boot_ns() + int(wait_s * 1e9)
        while True:
            end = self._world.end_of(name, exec_id)
            left_s = (until_ns - clock.boot_ns()) / 1e9
            if end is not None or left_s <= 0:
                return end
            self._wait(name, exec_id, left_s)

    def _wait(self, name: str, exec_id: str, left_s: float) -> None:
        clock = self._world.clock
        job = self._world.box(name).jobs[exec_id]
        left_s = min(left_s, max((job.ends_ns - clock.boot_ns()) / 1e9, TICK_S))
        if isinstance(clock, ManualClock):
            clock.advance(left_s)
            self._world.pump()
        else:
            self._tick.wait(left_s)

    def output(self, name: str, exec_id: str, stream: str, start: int, limit_bytes: int) -> bytes:
        job = self._world.box(name).jobs.get(exec_id)
        if job is None or self._world.clock.boot_ns() >= job.ends_ns:
            raise NotFound("no_output", "no such output")
        # A fake command prints all that it prints when it starts.
        printed = job.script.stderr if stream == "stderr" else job.script.stdout
        return printed.encode()[start : start + limit_bytes]

    def interrupt(self, name: str, exec_id: str) -> None:
        job = self._world.box(name).jobs.get(exec_id)
        now = self._world.clock.boot_ns()
        if job is not None and now < job.ends_ns:
            job.ends_ns, job.killed, job.timed_out = now, True, False
            self._world.pump()

    def result(self, name: str, exec_id: str, limit_bytes: int) -> bytes | None:
        with self._world.step("result", name):
            file = self._world.result_of(name, exec_id)
        if file is not None and len(file) > limit_bytes:
            raise TooLarge("too_large", f"the result file is larger than {limit_bytes} bytes")
        return file

    def upload(self, name: str, source: BinaryIO, guest_path: str, mode: int = 0o644) -> int:
        box = self._world.box(name)
        if guest_path.endswith("/") or not guest_path.startswith("/"):
            raise BadRequest("bad_path", f"{guest_path!r} is not the absolute path of a file")
        box.files[guest_path] = source.read()
        return len(box.files[guest_path])

    def download(self, name: str, guest_path: str, sink: BinaryIO, limit_bytes: int) -> int:
        files = self._world.box(name).files
        if guest_path not in files:
            raise NotFound("not_found", f"no file {guest_path} in this machine")
        if len(files[guest_path]) > limit_bytes:
            raise TooLarge("too_large", f"{guest_path} is larger than {limit_bytes} bytes")
        return sink.write(files[guest_path])

    def unpack(self, name: str, tar: BinaryIO, guest_path: str) -> None:
        self._world.box(name).files[f"{guest_path}/.unpacked"] = tar.read()

    def allow(self, name: str, targets: tuple[str, ...]) -> None:
        self._world.box(name).allowed = targets

    def egress_log(self, name: str) -> tuple[dict[str, str], ...]:
        box = self._world.boxes.get(name)
        return tuple(box.egress[-64:]) if box else ()

    def quiesce(self, name: str) -> str:
        return self._world.box(name).boot_id

    def close(self, name: str) -> None:
        box = self._world.boxes.get(name)
        if box is not None:
            box.attached = False
