from __future__ import annotations

import pytest

from app.domain.egress import check, host_and_port, lost_while
from app.errors import BadRequest, Forbidden


def test_nothing_is_allowed_by_default_and_the_target_is_named() -> None:
    with pytest.raises(Forbidden) as refused:
        check(["policy.internal:8000"], [])
    assert refused.value.code == "egress_not_allowed"
    assert refused.value.details == {"target": "policy.internal:8000"}
    assert "policy.internal:8000" in refused.value.message


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        ("policy.internal:8000", "policy.internal:8000"),
        ("Policy.Internal.:8000", "policy.internal:8000"),
        ("a.b.internal:443", "*.internal:443"),
        ("policy.internal:8000", "policy.internal:*"),
        ("policy.internal:8000", "*:8000"),
        ("10.0.0.7:80", "10.0.0.7:80"),
        ("[fd00:0::1]:443", "[fd00::1]:443"),
    ],
)
def test_a_pattern_allows(target: str, pattern: str) -> None:
    check([target], ["other.internal:1", pattern])


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        ("policy.internal:8001", "policy.internal:8000"),
        ("internal:443", "*.internal:443"),
        ("evilinternal:443", "*.internal:443"),
        ("policy.internal.evil:8000", "policy.internal:8000"),
        ("10.0.0.70:80", "10.0.0.7:80"),
        ("[fd00::2]:443", "[fd00::1]:443"),
    ],
)
def test_a_near_miss_is_refused(target: str, pattern: str) -> None:
    with pytest.raises(Forbidden):
        check([target], [pattern])


def test_the_first_target_that_is_not_allowed_is_the_one_named() -> None:
    with pytest.raises(Forbidden) as refused:
        check(["a.internal:1", "b.internal:1", "c.internal:1"], ["a.internal:1"])
    assert refused.value.details["target"] == "b.internal:1"


@pytest.mark.parametrize(
    "target",
    [
        "",
        "policy.internal",
        ":80",
        "policy.internal:",
        "policy.internal:0",
        "policy.internal:65536",
        # Found by fuzzing: zeros in front hid what came after them.
        "policy.internal:0239618",
        "policy.internal:8e1",
        "policy.internal:\u0661",
        "policy.internal:80:90",
        "http://policy.internal:80",
        "user@policy.internal:80",
        "policy..internal:80",
        "-policy:80",
        "*.internal:80",
        "policy.internal:*",
        "a b:80",
        "fd00::1:443",
        "[fd00::zz]:443",
        "[fe80::1%eth0]:443",
    ],
)
def test_what_is_no_target_is_a_bad_request(target: str) -> None:
    with pytest.raises(BadRequest) as refused:
        host_and_port(target)
    assert refused.value.code == "bad_egress"


def test_a_target_is_its_host_and_port() -> None:
    assert host_and_port("Policy.Internal:8000") == ("policy.internal", 8000)
    assert host_and_port("[FD00::1]:443") == ("fd00::1", 443)


def line(what: str, since_boot_ns: int, at_boot_ns: int) -> dict[str, str]:
    times = {"since_boot_ns": str(since_boot_ns), "at_boot_ns": str(at_boot_ns)}
    return {"target": "a:1", "what": what, **times}


def test_only_what_was_lost_while_a_command_ran_is_its_own() -> None:
    lines = [
        line("reset", 99, 99),
        line("refused", 150, 150),
        line("gone", 100, 100),
        line("reset", 200, 200),
        line("timed_out", 190, 290),
        line("proxy_away", 0, 300),
    ]
    assert lost_while(lines, 100, 200) == [lines[2], lines[3], lines[4], lines[5]]
    assert lost_while(lines, 101, 189) == [lines[5]]
    assert lost_while(lines, 301, 400) == []
