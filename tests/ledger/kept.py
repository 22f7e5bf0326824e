"""Books of forks that are kept: their verdict stands, and they get no more of the pool."""

from __future__ import annotations

from dataclasses import replace

from app.domain.fork import EndReason, ForkState
from tests.ledger.books import Attempt, Books, End, Fork, Run


class KeepingBooks(Books):
    """`limits` are the `keep_failed` of runs; `kept` the verdicts: the reason, and whether the environment failed."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: dict[str, int] = {}
        self.kept: dict[str, tuple[EndReason, bool]] = {}

    def keep(self, attempt_id: str, claim: str, reason: EndReason, *, failed: bool) -> bool:
        """Raises StaleClaim."""
        _, fork = self._held(attempt_id, claim)
        if fork.fork_id in self.kept:
            return True
        of_run = [each for each in self.of_run(fork.run_id) if each.state is not ForkState.ENDED]
        full = sum(each.fork_id in self.kept for each in of_run) >= self.limits.get(fork.run_id, 0)
        if full or fork.template or fork.stop_asked or fork.state is not ForkState.READY:
            return False
        self.kept[fork.fork_id] = (reason, failed)
        return True

    def _reason(self, attempt: Attempt, fork: Fork, end: End) -> EndReason | None:
        if fork.fork_id in self.kept:
            return self.kept[fork.fork_id][0]
        return super()._reason(attempt, fork, end)

    def _close(
        self,
        attempt: Attempt,
        fork: Fork,
        end: End,
        reason: EndReason | None,
        now_ns: int,
        joining: tuple[Fork, ...],
    ) -> Fork:
        if fork.fork_id in self.kept:
            end = replace(end, failed=self.kept[fork.fork_id][1])
        return super()._close(attempt, fork, end, reason, now_ns, joining)

    def _wanting(self, run: Run) -> list[Fork]:
        return [fork for fork in super()._wanting(run) if fork.fork_id not in self.kept]
