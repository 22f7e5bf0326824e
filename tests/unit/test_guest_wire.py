"""Lines of the control port: what a guest may say, and what is nothing."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.machine import Awake, Identity
from infra.guest import wire

UUID = "12345678-9abc-def0-1234-56789abcdef0"
KEY = bytes(range(32))
AWAKE = (
    f"AWAKE protocol=1 nonce={'a' * 32} boot_id={UUID} sample={'0123456789abcdef' * 2} time_ns=1700000000000000000 "
    f"hostname=fork-1 machine_id={'b' * 32} host_key={KEY.hex()} reseeded=1"
)
ENDED = (
    "ENDED id=x1 exit_code=0 signal=- timed_out=0 duration_ns=5 stdout_bytes=2 stderr_bytes=0 truncated=0 "
    "oom_kills=0 oom_elsewhere=0 stdout_b64=aGk= stderr_b64="
)
IDENTITY = Identity("f", "fork-1", UUID, "b" * 32, "a" * 32, bytes(64))


def line(text: str) -> wire.Line:
    parsed = wire.parse(text.encode())
    assert parsed is not None
    return parsed


def test_a_line_is_a_verb_and_its_fields() -> None:
    assert line("PONG n=3 s=") == wire.Line("PONG", {"n": "3", "s": ""})
    assert line("QUIET") == wire.Line("QUIET", {})
    assert line("X k=a=b k=c").text("k") == "a=b"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"pong n=1",
        b"PONG  n=1",
        b"PONG n",
        b"PONG =1",
        b"PONG n=\x00",
        b"PONG n=\x1b[2J",
        "PONG n=ä".encode(),
        b"PONG n=\xff",
        b"P" * 17,
        b"PONG " + b"n=1 " * 40,
        b"X a=" + b"b" * wire.LINE_LIMIT,
    ],
)
def test_what_is_no_line_is_nothing(raw: bytes) -> None:
    assert wire.parse(raw) is None


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    parsed = wire.parse(raw)
    if parsed is not None:
        wire.awake_of(parsed, KEY, 0)
        wire.ended_of(parsed)
        wire.boot_id_of(parsed)


@given(
    st.sampled_from(["AWAKE", "ENDED"]),
    st.dictionaries(
        st.sampled_from(
            [token.partition("=")[0] for text in (AWAKE, ENDED) for token in text.split()[1:]]
        ),
        st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40),
    ),
)
def test_no_fields_break_the_reader(verb: str, fields: dict[str, str]) -> None:
    told = wire.Line(verb, {**line(ENDED).fields, **line(AWAKE).fields, **fields})
    awake, ended = wire.awake_of(told, KEY, 0), wire.ended_of(told)
    assert awake is None or len(awake.nonce) == len(awake.sample) == 32
    assert ended is None or (ended.exit_code or 0) <= 255


@pytest.mark.parametrize("number", ["", "-1", "1.5", "0x10", "9" * 19, "9" * 20, "1 ", "٣"])
def test_a_number_is_decimal_and_fits(number: str) -> None:
    assert wire.Line("X", {"n": number}).number("n") is None
    assert wire.Line("X", {"n": str(2**63 - 1)}).number("n") == 2**63 - 1


def test_an_awake_line_is_read_with_the_hosts_clock() -> None:
    awake = wire.awake_of(line(AWAKE), KEY, 17)
    assert awake is not None
    assert (awake.nonce, awake.sample) == ("a" * 32, "0123456789abcdef" * 2)
    assert (awake.guest_wall_ns, awake.host_wall_ns) == (1_700_000_000_000_000_000, 17)
    assert (awake.hostname, awake.machine_id, awake.boot_id) == ("fork-1", "b" * 32, UUID)
    assert (awake.host_key_sound, awake.reseeded) == (True, True)


def test_another_host_key_and_no_reseed_are_seen() -> None:
    assert not _awake(AWAKE, bytes(32)).host_key_sound
    assert not _awake(AWAKE.replace("reseeded=1", "reseeded=0"), KEY).reseeded
    assert not _awake(AWAKE.replace(" reseeded=1", ""), KEY).reseeded


@pytest.mark.parametrize(
    "change",
    [
        ("AWAKE", "QUIET"),
        ("protocol=1", "protocol=2"),
        ("nonce=aa", "nonce=a"),
        ("nonce=aa", "nonce=Aa"),
        ("sample=0", "sample="),
        (UUID, "not-a-uuid"),
        ("time_ns=17", "time_ns=x17"),
        ("hostname=", "hostname=" + "h" * 60),
    ],
)
def test_an_awake_line_with_a_flaw_is_nothing(change: tuple[str, str]) -> None:
    assert wire.awake_of(line(AWAKE.replace(*change)), KEY, 0) is None


def test_an_end_is_read_with_its_output() -> None:
    ended = wire.ended_of(line(ENDED))
    assert ended is not None
    end = ended.with_output(ended.stdout or b"", ended.stderr or b"")
    assert (end.exit_code, end.signal, end.timed_out, end.stdout) == (0, None, False, b"hi")
    assert not end.victim_of_own_memory


def test_an_end_by_signal_by_time_and_by_memory() -> None:
    killed = wire.ended_of(line(ENDED.replace("exit_code=0 signal=-", "exit_code=- signal=9")))
    late = wire.ended_of(
        line(ENDED.replace("exit_code=0", "exit_code=-").replace("timed_out=0", "timed_out=1"))
    )
    eaten = wire.ended_of(line(ENDED.replace("oom_kills=0", "oom_kills=2")))
    assert killed is not None
    assert late is not None
    assert eaten is not None
    assert (killed.exit_code, killed.signal) == (None, 9)
    assert (late.exit_code, late.signal, late.timed_out) == (None, None, True)
    assert eaten.with_output(b"", b"").victim_of_own_memory
    beside = wire.ended_of(line(ENDED.replace("oom_elsewhere=0", "oom_elsewhere=1")))
    assert beside is not None
    assert beside.with_output(b"", b"").victim_elsewhere
    assert not beside.with_output(b"", b"").victim_of_own_memory


def test_a_stream_that_did_not_ride_along_is_none() -> None:
    ended = wire.ended_of(
        line(ENDED.replace("stdout_bytes=2", "stdout_bytes=99999").replace(" stdout_b64=aGk=", ""))
    )
    assert ended is not None
    assert (ended.stdout, ended.stderr) == (None, b"")


@pytest.mark.parametrize(
    "change",
    [
        ("ENDED", "STARTED"),
        ("id=x1", "id=../x"),
        ("id=x1", "id="),
        ("exit_code=0", "exit_code=256"),
        ("exit_code=0", "exit_code=-"),
        ("signal=-", "signal=9"),
        ("timed_out=0", "timed_out=1"),
        ("exit_code=0 signal=-", "exit_code=- signal=65"),
        ("duration_ns=5", "duration_ns=-5"),
        ("oom_kills=0", ""),
        ("oom_elsewhere=0", "oom_elsewhere=some"),
        ("stdout_bytes=2", "stdout_bytes=3"),
        ("stdout_bytes=2 ", ""),
        ("stdout_b64=aGk=", "stdout_b64=aGk"),
        ("stdout_b64=aGk=", "stdout_b64=a!k="),
    ],
)
def test_an_end_with_a_flaw_is_nothing(change: tuple[str, str]) -> None:
    assert ENDED.replace(*change) != ENDED
    parsed = wire.parse(ENDED.replace(*change).encode())
    assert parsed is None or wire.ended_of(parsed) is None


def test_more_inline_output_than_a_line_carries_is_nothing() -> None:
    size = wire.INLINE_BYTES + 1
    encoded = base64.b64encode(bytes(size)).decode()
    text = ENDED.replace("stdout_bytes=2", f"stdout_bytes={size}").replace("aGk=", encoded)
    assert wire.ended_of(line(text)) is None


def test_a_wake_line_says_all_of_an_identity() -> None:
    told = line(wire.wake(IDENTITY, b"key file", 5).decode().rstrip("\n"))
    assert told.verb == "WAKE"
    assert told.fields == {
        "nonce": "a" * 32,
        "entropy": "00" * 64,
        "time_ns": "5",
        "hostname": "fork-1",
        "generation": UUID,
        "machine_id": "b" * 32,
        "host_key_b64": base64.b64encode(b"key file").decode(),
    }


@pytest.mark.parametrize(
    "identity",
    [
        Identity("f", "fork 1", UUID, "b" * 32, "a" * 32, bytes(64)),
        Identity("f", "fork-1\n", UUID, "b" * 32, "a" * 32, bytes(64)),
        Identity("f", "fork-1", "x", "b" * 32, "a" * 32, bytes(64)),
        Identity("f", "fork-1", UUID, "b", "a" * 32, bytes(64)),
        Identity("f", "fork-1", UUID, "b" * 32, "A" * 32, bytes(64)),
        Identity("f", "fork-1", UUID, "b" * 32, "a" * 32, bytes(63)),
    ],
)
def test_an_identity_that_no_line_can_carry_is_refused(identity: Identity) -> None:
    with pytest.raises(ValueError, match=r"hex digits|UUID"):
        wire.wake(identity, b"", 0)


def test_a_boot_id_is_a_uuid_or_nothing() -> None:
    assert wire.boot_id_of(line(f"QUIET boot_id={UUID}")) == UUID
    assert wire.boot_id_of(line("QUIET boot_id=x")) is None
    assert wire.boot_id_of(line("QUIET")) is None


def _awake(text: str, key: bytes) -> Awake:
    awake = wire.awake_of(line(text), key, 0)
    assert awake is not None
    return awake
