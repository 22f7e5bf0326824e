"""What a grade's file and end may say, whatever a guest makes of them."""

from __future__ import annotations

import json
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.grade import (
    NO_REASON,
    REASON_LIMIT,
    RESULT_LIMIT_BYTES,
    Told,
    crash_of,
    grade_of,
    no_grade,
    parse,
)
from app.domain.machine import CommandEnd
from app.errors import BadRequest

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
_TOLD = st.dictionaries(st.sampled_from(["reward", "valid", "reason", "score"]), _JSON)


def ended(exit_code: int | None = 0, **more: object) -> CommandEnd:
    return CommandEnd(exit_code, None, False, 2_000_000_000, **more)  # type: ignore[arg-type]


@given(st.binary(max_size=200) | _JSON.map(lambda told: json.dumps(told).encode()))
def test_any_bytes_are_a_finite_reward_or_a_reason_or_refused(file: bytes) -> None:
    try:
        told = parse(file)
    except BadRequest:
        return
    assert (told.reward is None) != (told.reason is None)
    assert told.reward is None or isfinite(told.reward)


@given(_TOLD)
def test_an_object_is_read_by_its_two_keys_alone(given: dict[str, object]) -> None:
    reward, valid = given.get("reward"), given.get("valid", True)
    number = isinstance(reward, int | float) and not isinstance(reward, bool)
    sound = number and -1e308 < reward < 1e308  # type: ignore[operator]
    # Python writes NaN and the infinities as words that are no JSON, wherever they stand.
    words = any(word in json.dumps(given) for word in ("NaN", "Infinity"))
    try:
        told = parse(json.dumps(given).encode())
    except BadRequest:
        assert words or not isinstance(valid, bool) or (valid and not sound)
        return
    if valid is False:
        assert told.reward is None
        assert told.reason
    else:
        assert told.reward == reward


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_finite_reward_is_that_reward(reward: float) -> None:
    assert parse(json.dumps({"reward": reward}).encode()).reward == reward


@pytest.mark.parametrize(
    ("file", "reward"),
    [
        (b'{"reward": 0.25}', 0.25),
        (b'{"reward": 1, "passed": 12, "notes": [null]}', 1.0),
        (b'{"valid": true, "reward": -3}', -3.0),
        (b' \n{"reward": 1e-400}\n', 0.0),
    ],
)
def test_rewards(file: bytes, reward: float) -> None:
    assert parse(file) == Told(reward=reward)


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"", "not JSON"),
        (b"0.5", "not a JSON object"),
        (b'[{"reward": 1}]', "not a JSON object"),
        (b"{}", "no `reward`"),
        (b'{"reward": null}', "not a number"),
        (b'{"reward": "1.0"}', "not a number"),
        (b'{"reward": true}', "not a number"),
        (b'{"reward": NaN}', "NaN is not a number"),
        (b'{"reward": Infinity}', "Infinity is not a number"),
        (b'{"reward": -Infinity}', "-Infinity is not a number"),
        (b'{"reward": 1e999}', "not finite"),
        (b'{"reward": 1' + b"0" * 400 + b"}", "too large"),
        (b'{"reward": 1' + b"0" * 5000 + b"}", "not JSON"),
        (b'{"reward": 1, "reward": 0}', "twice"),
        (b'{"reward": 1, "valid": "false"}', "`valid`"),
        (b'{"reward": 1, "valid": 0}', "`valid`"),
        (b'{"reward": 1} {"reward": 0}', "not JSON"),
        (b'{"reward": \xff}', "not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"[" * 60_000, "nested too deeply"),
        (b'{"reward": 1}' + b" " * RESULT_LIMIT_BYTES, "more than"),
    ],
)
def test_what_is_no_result(file: bytes, why: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse(file)
    assert why in raised.value.message


def test_a_sample_that_is_not_valid_keeps_its_reason() -> None:
    assert parse(b'{"valid": false, "reason": "no network"}') == Told(reason="no network")
    assert parse(b'{"valid": false, "reward": 1.0, "reason": "x"}').reward is None
    for file in (
        b'{"valid": false}',
        b'{"valid": false, "reason": 7}',
        b'{"valid":false,"reason":" "}',
    ):
        assert parse(file) == Told(reason=NO_REASON)
    hostile = json.dumps({"valid": False, "reason": "\0\ud800" + "x" * 9000}).encode()
    reason = parse(hostile).reason or ""
    assert len(reason) <= REASON_LIMIT
    assert "\0" not in reason
    assert reason.encode()


@pytest.mark.parametrize("code", [0, 1, 2, 75, 125, 128])
def test_an_end_in_order_is_a_grade(code: int) -> None:
    assert crash_of(ended(code)) is None
    reward = 1.0 if code == 0 else 0.0
    grade = grade_of(ended(code, stdout=b"out", stderr=b"\0"), None)
    assert (grade.reward, grade.valid, grade.exit_code) == (reward, True, code)
    assert grade.as_dict()["seconds"] == 2.0
    assert (grade.stdout_tail, grade.stderr_tail) == ("out", "\ufffd")
    assert grade_of(ended(code), Told(reward=0.3)).reward == 0.3


@pytest.mark.parametrize(
    "end",
    [
        ended(126),
        ended(127),
        ended(129),
        ended(137),
        ended(255),
        CommandEnd(None, 11, False, 1),
        CommandEnd(None, 9, True, 1),
        CommandEnd(0, None, True, 1),
    ],
)
def test_a_crash_is_no_grade(end: CommandEnd) -> None:
    why = crash_of(end)
    assert why
    grade = no_grade(end, why)
    assert (grade.reward, grade.valid, grade.reason) == (None, False, why)
