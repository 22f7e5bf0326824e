"""What `make fuzz` does for minutes, in a second: real lines of guests, a little broken, and bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drills.fuzz.targets import TARGETS

# What ends a line, a head, a name, a number: where a parser can be led astray.
SIGNS = [
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"=",
    b":",
    b"\0",
    b"\xff",
    b"[",
    b"%",
    b"@",
    b"/",
    b"0",
    b"-1",
    b"9" * 40,
]


@st.composite
def broken(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A seed in which some parts are cut out, doubled, or in the way."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        between = draw(st.sampled_from([*SIGNS, data[start:end] * 2, b""]) | st.binary(max_size=8))
        data = data[:start] + between + data[end:]
    return data


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_parser_keeps_its_promise_whatever_a_guest_says(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(broken(target.seeds) | st.binary(max_size=200))
    def hold(data: bytes) -> None:
        target.run(data)

    hold()


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_what_guests_really_say_goes_through(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("target", b"2856:0239618"),
        ("request", b"GET http://i[fd00::1]:8/ HTTP/1.1\r\n\r\n"),
        ("request", b"GET http://a/ HTTP/1.1\r\nx: chunked\rHost: b\r\n\r\n"),
    ],
)
def test_what_the_fuzzer_once_found_stays_mended(name: str, data: bytes) -> None:
    TARGETS[name].run(data)
