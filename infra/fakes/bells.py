"""A queue that keeps its bells until it is told to ring them: to lose, double or reorder them is a test's choice."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Bell(NamedTuple):
    """One doorbell: its task and the ids it carries."""

    task: str
    ids: tuple[str, ...]


class FakeBells:
    """`Bells` as a list. `woken` is kept apart: it wakes callers, it starts no work."""

    def __init__(self) -> None:
        self.waiting: deque[Bell] = deque()
        self.wakes: list[str] = []

    def place(self) -> None:
        self.waiting.append(Bell("place", ()))

    def fork(self, host_id: str, count: int = 1) -> None:
        self.waiting.extend([Bell("fork", (host_id,))] * count)

    def build(self, host_id: str, build_id: str) -> None:
        self.waiting.append(Bell("build", (host_id, build_id)))

    def verify(self, host_id: str, build_id: str) -> None:
        self.waiting.append(Bell("verify", (host_id, build_id)))

    def exec(self, claim: str, exec_id: str) -> None:
        self.waiting.append(Bell("exec", (claim, exec_id)))

    def collect(self, claim: str, attempt_id: str) -> None:
        self.waiting.append(Bell("collect", (claim, attempt_id)))

    def stop(self, claim: str, attempt_id: str) -> None:
        self.waiting.append(Bell("stop", (claim, attempt_id)))

    def woken(self, exec_id: str) -> None:
        self.wakes.append(exec_id)
