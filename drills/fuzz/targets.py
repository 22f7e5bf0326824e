"""Every parser that reads what a guest wrote, with real lines to begin with, and what holds whatever is read.

A target is run with any bytes. It returns where they are refused in the way that its parser promises, and raises for
anything else: a crash, a bound that does not hold, an answer that contradicts itself. See docs/threat-model.md for the
surface that these are of.
"""

from __future__ import annotations

import json
import math
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.domain import grade
from app.domain.checks import marker_exit, on_channel
from app.domain.egress import host_and_port
from app.domain.machine import Accelerator, RestoreKey, Shape
from app.errors import BadRequest, EnvironmentFault
from infra import manifest
from infra.egress.addresses import refusal, resolve
from infra.egress.answer import Answer
from infra.egress.http import HEAD_LIMIT, HeadReader, ProxyRequest, RequestRefusedError
from infra.guest import probe, wire
from infra.guest.commands import Journal
from infra.guest.control import ControlPort
from infra.qemu.evidence import console_tail
from infra.qemu.home import Home

UUID = b"12345678-9abc-def0-1234-56789abcdef0"
MARKER = "ab" * 16
# As large as a port's own reads.
_PIECE_BYTES = 65536
_METADATA = socket.inet_aton("169.254.169.254")


@dataclass(frozen=True, slots=True)
class Target:
    """`run` raises where a promise is broken; `seeds` are what guests really say."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def control(data: bytes) -> None:
    """A control port: bounded whatever comes, and only whole and sound lines are heard; an end is told once."""
    ours, theirs = socket.socketpair()
    with theirs:
        journal = Journal()
        heard: list[wire.Line] = []
        for number in range(4):
            journal.watch(f"x{number}")
        port = ControlPort("m1", ours, heard.append)
        step = 1 + (data[0] if data else 0)
        for at in range(0, len(data), step):
            port.take(data[at : at + step])
            kept = len(port._buffer)  # noqa: SLF001 - that it has a bound is what is promised
            assert kept <= wire.LINE_LIMIT + _PIECE_BYTES
        port.hang_up()
    told: set[str] = set()
    for line in heard:
        _check_line(line)
        end = wire.ended_of(line)
        if end is not None and journal.ended(end):
            assert end.exec_id not in told
            told.add(end.exec_id)


def _check_line(line: wire.Line) -> None:
    assert all(value.isascii() and value.isprintable() for value in line.fields.values())
    assert " " not in "".join(line.fields.values())
    awake = wire.awake_of(line, b"k" * 32, 0)
    if awake is not None:
        assert len(awake.nonce) == len(awake.sample) == 32
        assert max(len(awake.hostname), len(awake.machine_id)) <= 64
        assert 0 <= awake.guest_wall_ns < 2**63
    end = wire.ended_of(line)
    if end is not None:
        assert (end.exit_code is not None) + (end.signal is not None) + end.timed_out == 1
        assert 0 <= end.duration_ns < 2**63
        assert all(len(kept or b"") <= wire.INLINE_BYTES for kept in (end.stdout, end.stderr))


def probed(data: bytes) -> None:
    """The fork contract's probe: bounded evidence, and no check is sound by what is missing."""
    seen = probe.parse(data.decode("ascii", "replace"), marker_exit(MARKER))
    if seen is None:
        return
    checks = on_channel(seen, MARKER, "0" * 16, (), 0.0)
    assert [check.name for check in checks] == ["disk", "channel", "egress"]
    if checks[0].sound:
        assert f"marker={MARKER}".encode() in data
    if checks[2].sound:
        assert b"reached=0" in data


def result(data: bytes) -> None:
    """A grade's result file: a finite reward, or a reason; else refused."""
    try:
        told = grade.parse(data)
    except BadRequest:
        return
    assert (told.reward is None) != (told.reason is None)
    assert told.reward is None or math.isfinite(told.reward)
    assert len(told.reason or "") <= grade.REASON_LIMIT
    json.dumps({"reward": told.reward, "reason": told.reason}, allow_nan=False)


def request(data: bytes) -> None:
    """The egress proxy's request: what goes on is one request, to the one host that was checked."""
    step = 1 + (data[0] if data else 0)
    pieces = iter([data[at : at + step] for at in range(0, len(data), step)])
    try:
        asked = HeadReader(lambda _: next(pieces, b"")).read()
        host_and_port(asked.target)
        passed = asked.client_bytes if asked.is_tunnel else _one_request(asked)
        assert sum(map(len, passed)) <= 8 * len(data) + HEAD_LIMIT
    except (RequestRefusedError, EOFError):
        return


def _one_request(asked: ProxyRequest) -> list[bytes]:
    head, *body = asked.client_bytes
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    names = [line.partition(b":")[0].lower() for line in lines[1:]]
    assert head.count(b"\r\n\r\n") == 1
    assert b"\n" not in head.replace(b"\r\n", b"")
    assert b"\r" not in head.replace(b"\r\n", b"")
    assert names.count(b"host") == names.count(b"connection") == 1
    named = lines[1].partition(b": ")[2].decode("latin-1")
    if named.endswith("]") or ":" not in named:
        named += ":80"
    assert host_and_port(named) == host_and_port(asked.target)
    lengths = [line for line in lines if line.lower().startswith(b"content-length:")]
    sent = b"".join(body)
    if b"transfer-encoding" in names:
        assert not lengths
        assert sent.endswith(b"0\r\n\r\n")
    else:
        assert len({line.partition(b":")[2].strip() for line in lengths}) <= 1
        assert len(sent) == (int(lengths[0].partition(b":")[2]) if lengths else 0)
    return [head, sent]


def answer(data: bytes) -> None:
    """What is counted of a target's answer does not depend on the pieces that it came in."""
    method = ("GET", "HEAD", "CONNECT")[len(data) % 3]
    whole, dripped = Answer(method), Answer(method)
    whole.take(data)
    for at in range(len(data)):
        dripped.take(data[at : at + 1])
    assert (whole.is_whole, whole.seen) == (dripped.is_whole, dripped.seen)


def target(data: bytes) -> None:
    """A target's spelling: refused, or a name or an address; and no spelling of an address leads to the metadata."""
    try:
        host, port = host_and_port(data.decode("utf-8", "surrogateescape"))
    except BadRequest:
        return
    assert 1 <= port <= 65535
    assert host == host.lower()
    assert not set(host) & set("@/\\%?#[] \0\r\n*")
    try:
        packed = socket.inet_aton(host)
    except (OSError, ValueError):
        return
    if packed == _METADATA:
        assert all(refusal(address) is not None for address in resolve(host, port))


def bundle(data: bytes) -> None:
    """A manifest, which lies on a disk that a host of another time wrote: whole and sealed, or a named fault."""
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm") as folder:
        (Path(folder) / manifest.NAME).write_bytes(data)
        try:
            read = manifest.read(Path(folder))
        except EnvironmentFault:
            return
        for name in read.files:
            assert Path(name).name == name, "a bundle's file lies in its folder"


def console(data: bytes) -> None:
    """The console's tail: bounded, and nothing in it moves a terminal's cursor."""
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir="/dev/shm") as folder:
        (Path(folder) / "console").write_bytes(data)
        text = console_tail(Home(Path(folder)))
    assert len(text.encode()) <= 3 * 4096
    assert all(char in "\n\t" or char.isprintable() or ord(char) >= 0xA0 for char in text)


def _manifest() -> bytes:
    record = manifest.FileRecord(3, ("0" * 64,))
    key = RestoreKey("QEMU 10.0", "pc-q35-10.0", Accelerator.TCG, "Westmere-v1")
    made = manifest.Manifest(
        Shape(1, 128, 1), key, UUID.decode(), "0" * 16, 1, {"memory": record, "state": record}
    )
    with tempfile.TemporaryDirectory() as folder:
        manifest.write(Path(folder), made)
        return (Path(folder) / manifest.NAME).read_bytes()


_AWAKE = (
    b"AWAKE protocol=1 nonce=" + b"a" * 32 + b" boot_id=" + UUID + b" sample=" + b"01234567" * 4
    + b" time_ns=1700000000000000000 hostname=fork-1 machine_id=" + b"b" * 32
    + b" host_key=" + b"6b" * 32 + b" reseeded=1\n"
)  # fmt: skip
_ENDED = (
    b"ENDED id=x1 exit_code=0 signal=- timed_out=0 duration_ns=5 stdout_bytes=2 stderr_bytes=0 "
    b"truncated=0 oom_kills=0 oom_elsewhere=0 stdout_b64=aGk= stderr_b64=\n"
)
_SIGNALLED = (
    b"ENDED id=x2 exit_code=- signal=9 timed_out=0 duration_ns=5 stdout_bytes=20000 stderr_bytes=0 "
    b"truncated=1 oom_kills=1 oom_elsewhere=0 stderr_b64=\n"
)
_PROBE = (
    b"disk_id=0000000000000000\nmarker="
    + MARKER.encode()
    + b"\ninterface=lo\nreached=0\nforeign_marker=cd\n"
)

TARGETS: dict[str, Target] = {
    "control": Target(
        control,
        (_AWAKE, _ENDED, _SIGNALLED, b"PONG n=3\nOPENED n=1\nSHUT n=1\n", b"QUIET boot_id=" + UUID),
    ),
    "probe": Target(probed, (_PROBE,)),
    "result": Target(
        result,
        (
            b'{"reward": 0.5, "notes": [1, 2]}',
            b'{"valid": false, "reason": "no disk"}',
            b'{"reward": 1e308}',
        ),
    ),
    "request": Target(
        request,
        (
            b"CONNECT a.internal:443 HTTP/1.1\r\nHost: b\r\n\r\n\x16\x03",
            b"GET http://a:81/x?y HTTP/1.1\r\nHost: evil\r\nProxy-Connection: keep-alive\r\n\r\n",
            b"POST http://[fd00::1]:8/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbodyGET http://b/",
            b"POST http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;e=1\r\nhello\r\n0\r\nt: x\r\n\r\nGET",
        ),
    ),
    "answer": Target(
        answer,
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfull",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfull\r\n0\r\n\r\n",
            b"HTTP/1.0 204 No Content\r\n\r\n",
        ),
    ),
    "target": Target(
        target,
        (
            b"policy.internal:8000",
            b"[fd00::1]:443",
            b"169.254.169.254:80",
            b"0xa9fea9fe:80",
            b"2852039166:80",
        ),
    ),
    "manifest": Target(bundle, (_manifest(),)),
    "console": Target(
        console, (b"\x1b[2J\x1b[1;31mpanic\x1b[0m\r\n[   0.1] up\n", b"\xff\xfe\xc2\x9b31m")
    ),
}
