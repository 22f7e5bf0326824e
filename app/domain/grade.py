"""What a grade says of a fork: the file that it wrote, read as hostile, and how its command ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite

from app.domain.machine import CommandEnd, tail
from app.errors import BadRequest

RESULT_LIMIT_BYTES = 64 * 1024
REASON_LIMIT = 2000
NO_REASON = "the grade gave no reason"
# What a shell says of a program that it cannot run, or that a signal ended: 128 + its number.
CANNOT_RUN = frozenset({126, 127})
BY_SIGNAL = 128


@dataclass(frozen=True, slots=True)
class Told:
    """What a result file says: a finite `reward`, or by its `reason` that there is none to be had."""

    reward: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Grade:
    """A grade as the report shows it. Not `valid`: there is no reward, and `reason` says why. The tails are its own."""

    reward: float | None
    valid: bool
    reason: str | None = None
    exit_code: int | None = None
    duration_ns: int = 0
    stdout_tail: str = ""
    stderr_tail: str = ""

    def as_dict(self) -> dict[str, object]:
        """The JSON shape of the contract."""
        return {
            "reward": self.reward,
            "valid": self.valid,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "seconds": round(self.duration_ns / 1e9, 6),
            "stdout_tail": self.stdout_tail,
            "stderr_tail": self.stderr_tail,
        }


def parse(file: bytes) -> Told:
    """Read a result file: a JSON object with a finite `reward`, or with `valid: false` and a `reason`.

    Other keys are the grader's own. Raises BadRequest(bad_result) for anything else, and says what is wrong.
    """
    if len(file) > RESULT_LIMIT_BYTES:
        raise _bad(f"it has more than {RESULT_LIMIT_BYTES} bytes")
    told = _object(file)
    valid = told.get("valid", True)
    if not isinstance(valid, bool):
        raise _bad("`valid` is neither true nor false")
    if not valid:
        return Told(reason=_reason(told.get("reason")))
    if "reward" not in told:
        raise _bad("it has no `reward`")
    return Told(reward=_reward(told["reward"]))


def crash_of(end: CommandEnd) -> str | None:
    """Why a grade's end says nothing of what it graded; None if it ended by itself and in order."""
    if end.timed_out:
        return "the grade did not end within its time limit"
    if end.exit_code is None:
        return f"the grade was ended by signal {end.signal}"
    if end.exit_code in CANNOT_RUN:
        return f"the grade could not be run: exit code {end.exit_code}"
    if end.exit_code > BY_SIGNAL:
        return f"the grade crashed: exit code {end.exit_code}"
    return None


def grade_of(end: CommandEnd, told: Told | None) -> Grade:
    """The grade of a command that ended in order: its file's reward, else 1.0 for exit code 0 and 0.0 for another."""
    by_code = 1.0 if end.exit_code == 0 else 0.0
    reward = by_code if told is None or told.reward is None else told.reward
    return _grade(end, reward=reward, valid=True)


def no_grade(end: CommandEnd, reason: str) -> Grade:
    """That a grade ran and there is no reward to be had of it."""
    return _grade(end, reward=None, valid=False, reason=reason)


def _grade(
    end: CommandEnd, *, reward: float | None, valid: bool, reason: str | None = None
) -> Grade:
    return Grade(
        reward=reward,
        valid=valid,
        reason=reason,
        exit_code=None if end.timed_out else end.exit_code,
        duration_ns=end.duration_ns,
        stdout_tail=tail(end.stdout),
        stderr_tail=tail(end.stderr),
    )


def _object(file: bytes) -> dict[str, object]:
    try:
        told = json.loads(
            file.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_once_each
        )
    except UnicodeDecodeError as error:
        raise _bad("it is not UTF-8") from error
    except RecursionError as error:
        raise _bad("it is nested too deeply") from error
    except ValueError as error:  # an integer of more digits than Python reads is one too
        raise _bad(f"it is not JSON: {str(error)[:200]}") from error
    if not isinstance(told, dict):
        raise _bad("it is not a JSON object")
    return told


def _no_number(word: str) -> float:
    raise _bad(f"{word} is not a number")


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of a key that stands twice nobody can say which is meant."""
    told = dict(pairs)
    if len(told) != len(pairs):
        raise _bad("a key stands in it twice")
    return told


def _reward(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad("`reward` is not a number")
    try:
        reward = float(value)
    except OverflowError as error:
        raise _bad("`reward` is too large") from error
    if not isfinite(reward):
        raise _bad("`reward` is not finite")
    return reward


def _reason(value: object) -> str:
    """Whatever else stands there: that the sample is not valid was said."""
    if not isinstance(value, str) or not value.strip():
        return NO_REASON
    return _storable(value[:REASON_LIMIT])


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _bad(why: str) -> BadRequest:
    return BadRequest("bad_result", why)
