"""A host's floor on which tests lay what they like."""

from __future__ import annotations

from app.domain.leak import Leak, Trace


class FakeTraces:
    """`Traces` that are only a list. `stuck` are those that cannot be made away with."""

    def __init__(self) -> None:
        self.lying: list[Trace] = []
        self.stuck: set[Leak] = set()

    def found(self) -> tuple[Trace, ...]:
        return tuple(self.lying)

    def remove(self, leak: Leak) -> bool:
        if leak in self.stuck:
            return False
        before = len(self.lying)
        self.lying = [trace for trace in self.lying if trace.leak != leak]
        return len(self.lying) < before
