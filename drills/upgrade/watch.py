"""Who asks all the time: whether the API answers, and whether a held fork does what it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2

from promigence import Promigence, PromigenceError

POLL_S, EXEC_S, ANSWER_S = 0.1, 2.0, 2.0


@dataclass(slots=True)
class Away:
    """How long the API did not answer at a time, at the longest; and how often it was asked."""

    asked: int = 0
    longest_s: float = 0.0
    gaps: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Held:
    """What a held fork did: commands that were right, and what was wrong with the others."""

    right: int = 0
    slowest_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


@contextmanager
def polling(base_url: str, key: str) -> Iterator[Away]:
    """Inside, the API is asked ten times a second, by somebody who does not try again."""
    seen, over = Away(), threading.Event()
    thread = threading.Thread(target=_poll, args=(base_url, key, seen, over), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(timeout=2 * ANSWER_S)


@contextmanager
def serving(client: Promigence, fork_id: str) -> Iterator[Held]:
    """Inside, a held fork is given a command every other second."""
    seen, over = Held(), threading.Event()
    thread = threading.Thread(target=_exec, args=(client, fork_id, seen, over), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(timeout=60)


def _poll(base_url: str, key: str, seen: Away, over: threading.Event) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    answered_s = time.monotonic()
    with httpx2.Client(timeout=ANSWER_S, trust_env=False) as client:
        while not over.wait(POLL_S):
            seen.asked += 1
            try:
                well = client.get(f"{base_url}/v1/hosts", headers=headers).status_code == 200
            except httpx2.HTTPError:
                well = False
            now_s = time.monotonic()
            if well:
                _note(seen, now_s - answered_s)
                answered_s = now_s


def _note(seen: Away, gap_s: float) -> None:
    """Between two answers; what is longer than two polls and an ordinary answer is a gap."""
    seen.longest_s = max(seen.longest_s, gap_s)
    if gap_s > 1.0:
        seen.gaps.append(round(gap_s, 1))


def _exec(client: Promigence, fork_id: str, seen: Held, over: threading.Event) -> None:
    number = 0
    while not over.wait(EXEC_S):
        number += 1
        began_s = time.monotonic()
        try:
            said = client.forks.exec(fork_id, {"sh": f"echo {number}"})
        except PromigenceError as error:
            seen.wrong.append(f"command {number}: {error.code}: {error}")
            continue
        seen.slowest_s = max(seen.slowest_s, time.monotonic() - began_s)
        if (said["exit_code"], said["stdout"]) == (0, f"{number}\n"):
            seen.right += 1
        else:
            seen.wrong.append(f"command {number}: {said['exit_code']} {said['stdout']!r}")
