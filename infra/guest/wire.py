"""The lines of the control port, as data. A line from a guest is hostile: bounded, and whole and sound or nothing.

`guest/PROTOCOL.md` says what each line means.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field

from app.domain.machine import Awake, CommandEnd, Identity

# The version of guest/PROTOCOL.md that this host speaks; a bundle carries its own guest, which may be older.
PROTOCOL = "1"
LINE_LIMIT = 65536
INLINE_BYTES = 12 * 1024
REQUEST_LIMIT = 192 * 1024
_MAX_TOKENS = 32
_VERB = re.compile(r"[A-Z]{1,16}")
_KEY = re.compile(r"[a-z][a-z0-9_]{0,31}")
_HEX = re.compile(r"[0-9a-f]+")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EXEC_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")
_NUMBER = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Line:
    """A verb and its fields. Text only: a value is printable ASCII without spaces."""

    verb: str
    fields: dict[str, str] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """A field, or nothing."""
        return self.fields.get(key, "")

    def number(self, key: str) -> int | None:
        """A field that is a number from 0 to 2**63 - 1."""
        text = self.text(key)
        if not _NUMBER.fullmatch(text) or int(text) >= 2**63:
            return None
        return int(text)


@dataclass(frozen=True, slots=True)
class Ended:
    """An ENDED line. A stream that did not ride along is None: its bytes are still in the guest."""

    exec_id: str
    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_ns: int
    truncated: bool
    oom_kills: int
    oom_elsewhere: int
    stdout: bytes | None = field(repr=False)
    stderr: bytes | None = field(repr=False)

    def with_output(self, stdout: bytes, stderr: bytes) -> CommandEnd:
        """The end as the product knows it."""
        return CommandEnd(
            exit_code=self.exit_code,
            signal=self.signal,
            timed_out=self.timed_out,
            duration_ns=self.duration_ns,
            stdout=stdout,
            stderr=stderr,
            truncated=self.truncated,
            victim_of_own_memory=self.oom_kills > 0,
            victim_elsewhere=self.oom_elsewhere > 0,
        )


def parse(raw: bytes) -> Line | None:
    """A line without its end; None for what is none of the protocol's. Of a key that comes twice, the first counts."""
    if len(raw) > LINE_LIMIT or not raw.isascii():
        return None
    verb, *tokens = raw.decode("ascii").split(" ")
    if not _VERB.fullmatch(verb) or len(tokens) > _MAX_TOKENS:
        return None
    fields: dict[str, str] = {}
    for token in tokens:
        key, equals, value = token.partition("=")
        if not equals or not _KEY.fullmatch(key) or not value.isprintable():
            return None
        fields.setdefault(key, value)
    return Line(verb, fields)


def awake_of(line: Line, host_key: bytes, host_wall_ns: int) -> Awake | None:
    """An AWAKE line, read at `host_wall_ns` of the host's clock; `host_key` is the public key that it should show."""
    time_ns = line.number("time_ns")
    if line.verb != "AWAKE" or time_ns is None:
        return None
    sound = (
        line.text("protocol") == PROTOCOL
        and _hex(line.text("nonce"), 32)
        and _hex(line.text("sample"), 32)
        and _UUID.fullmatch(line.text("boot_id"))
        and len(line.text("hostname")) <= 64
        and len(line.text("machine_id")) <= 64
    )
    if not sound:
        return None
    return Awake(
        nonce=line.text("nonce"),
        boot_id=line.text("boot_id"),
        sample=line.text("sample"),
        guest_wall_ns=time_ns,
        host_wall_ns=host_wall_ns,
        hostname=line.text("hostname"),
        machine_id=line.text("machine_id"),
        host_key_sound=line.text("host_key") == host_key.hex(),
        reseeded=line.text("reseeded") == "1",
    )


def ended_of(line: Line) -> Ended | None:
    """An ENDED line; None unless all of it is sound and agrees with itself."""
    duration_ns = line.number("duration_ns")
    oom_kills, oom_elsewhere = line.number("oom_kills"), line.number("oom_elsewhere")
    stdout, stderr = _stream(line, "stdout"), _stream(line, "stderr")
    sound = line.verb == "ENDED" and _EXEC_ID.fullmatch(line.text("id")) and stdout and stderr
    if not sound or not stdout or not stderr:
        return None
    if duration_ns is None or oom_kills is None or oom_elsewhere is None:
        return None
    exit_code, signal = line.number("exit_code"), line.number("signal")
    timed_out = line.text("timed_out") == "1"
    # Exactly one of the three says how it ended.
    if (exit_code is not None) + (signal is not None) + timed_out != 1:
        return None
    if (exit_code or 0) > 255 or (signal or 0) > 64:
        return None
    return Ended(
        exec_id=line.text("id"),
        exit_code=exit_code,
        signal=signal,
        timed_out=timed_out,
        duration_ns=duration_ns,
        truncated=line.text("truncated") == "1",
        oom_kills=oom_kills,
        oom_elsewhere=oom_elsewhere,
        stdout=stdout.inline,
        stderr=stderr.inline,
    )


def boot_id_of(line: Line) -> str | None:
    """The boot id in a HELLO or QUIET line."""
    boot_id = line.text("boot_id")
    return boot_id if _UUID.fullmatch(boot_id) else None


def wake(told: Identity, host_key_file: bytes, wall_ns: int) -> bytes:
    """The line that passes the barrier. Raises ValueError for an identity that the guest could not take."""
    if not _hex(told.nonce, 32) or not _hex(told.machine_id, 32) or len(told.entropy) != 64:
        raise ValueError("nonce and machine id are 32 hex digits, entropy is 64 bytes")
    if not _UUID.fullmatch(told.generation) or not _HOSTNAME.fullmatch(told.hostname):
        raise ValueError("the generation is a UUID, the hostname has letters, digits, . and -")
    return _line(
        "WAKE",
        nonce=told.nonce,
        entropy=told.entropy.hex(),
        time_ns=wall_ns,
        hostname=told.hostname,
        generation=told.generation,
        machine_id=told.machine_id,
        host_key_b64=base64.b64encode(host_key_file).decode(),
    )


def time(wall_ns: int) -> bytes:
    """A second, shorter line: sets the clock more closely."""
    return _line("TIME", time_ns=wall_ns)


def ping(number: int) -> bytes:
    """Answered by PONG with the same number."""
    return _line("PING", n=number)


def open_ssh(number: int) -> bytes:
    """Answered by OPENED or SHUT with the same number, once a fresh server runs or cannot."""
    return _line("OPEN", n=number)


def about(verb: str, exec_id: str) -> bytes:
    """STATUS or KILL of a command."""
    return _line(verb, id=exec_id)


def bare(verb: str) -> bytes:
    """HELLO, QUIESCE."""
    return _line(verb)


def is_exec_id(text: str) -> bool:
    """Whether the guest can keep a command under this id."""
    return _EXEC_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class _Stream:
    inline: bytes | None


def _stream(line: Line, which: str) -> _Stream | None:
    size = line.number(f"{which}_bytes")
    if size is None:
        return None
    encoded = line.fields.get(f"{which}_b64")
    if encoded is None:
        return _Stream(None)
    try:
        inline = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return None
    return _Stream(inline) if len(inline) == size <= INLINE_BYTES else None


def _hex(text: str, digits: int) -> bool:
    return len(text) == digits and _HEX.fullmatch(text) is not None


def _line(verb: str, **fields: object) -> bytes:
    tokens = [verb, *(f"{key}={value}" for key, value in fields.items())]
    return " ".join(tokens).encode("ascii") + b"\n"
