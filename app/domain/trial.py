"""Machines that no row owns: brought up by us for a check of ours, each named by when it must be gone."""

from __future__ import annotations

from app.domain.money import NS_PER_SECOND

# How long one may live that is only brought up; one that runs a command has that one's limit beside it.
TRIAL_NS = 120 * NS_PER_SECOND

_TRIAL = "trial-"


def trial_name(begins_boot_ns: int, ends_boot_ns: int, token: str) -> str:
    """The name of a trial's machine: by itself it says from when until when it may live, to the second."""
    ends_s = -(-ends_boot_ns // NS_PER_SECOND)
    return f"{_TRIAL}{begins_boot_ns // NS_PER_SECOND}-{ends_s}-{token}"


def trial_goes_on(name: str, now_boot_ns: int) -> bool:
    """Whether a machine is a trial's whose time is not over. One of an earlier boot of its host, whose clock has begun
    anew since, has not begun by this one.
    """
    begins, _, rest = name.removeprefix(_TRIAL).partition("-")
    ends = rest.partition("-")[0]
    if not (name.startswith(_TRIAL) and begins.isdecimal() and ends.isdecimal()):
        return False
    return int(begins) * NS_PER_SECOND <= now_boot_ns < int(ends) * NS_PER_SECOND
