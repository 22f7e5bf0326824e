"""Under a binding cap, what early finishers leave is used by the rest: tick by tick, on the books of the laws."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.domain import ledger
from app.domain.fork import EndReason
from app.domain.ledger import Purse
from app.domain.money import NS_PER_SECOND, cost_micros
from tests.ledger.books import Attempt, Books, End, Fork, Run

RATE = 50_000
SECOND = NS_PER_SECOND
KILL_MARGIN_NS = 150_000_000
LONGEST_NS = 3600 * SECOND
# Each fork's funded seconds, and when each fork would end by itself.
FUNDED_S = st.integers(120, 300)
ENDS_S = st.lists(st.integers(5, 1500), min_size=24, max_size=24)


@settings(max_examples=30, deadline=None)
@given(FUNDED_S, ENDS_S)
# What one leaves is less than an extension for each of the other 23: 110 s, or 3.8 % of the cap.
@example(120, [10, *[1500] * 23])
def test_a_capped_run_spends_its_cap(funded_s: int, ends_s: list[int]) -> None:
    cap = cost_micros(len(ends_s) * funded_s * SECOND, RATE)
    books = _started(len(ends_s), cap)
    killed = _lived(books, [end_s * SECOND for end_s in ends_s])
    spent = books.runs["run"].purse.charged_micros
    margins = killed * cost_micros(KILL_MARGIN_NS, RATE)
    rest = ledger.smallest_extension_micros(RATE)
    assert books.runs["run"].ended
    assert killed == 0 or spent + margins + rest >= 0.98 * cap
    assert killed or spent == sum(cost_micros(end_s * SECOND, RATE) for end_s in ends_s)


def _started(count: int, cap: int) -> Books:
    """A run whose machines are all up at 0."""
    worst = cost_micros(LONGEST_NS, RATE)
    grants = ledger.equal_grants(cap, (worst,) * count)
    purse = Purse(cap, cap - sum(grants), sum(grants), 0)
    run = Run("run", cap, RATE, purse, count, environment_retries=0, rerun_started=False)
    smallest = cost_micros(60 * SECOND, RATE)
    forks = [
        Fork(f"fork{n:02}", "run", n, grant, worst, LONGEST_NS, smallest, host="host")
        for n, grant in enumerate(grants)
    ]
    books = Books()
    books.start(run, forks, 0)
    for n in range(count):
        assert books.open_next("host", "worker", "boot", 0, f"att{n:02}", 0) is not None
    return books


def _lived(books: Books, ends_ns: list[int]) -> int:
    """Let every machine live to its end, with a billing tick a second; how many were killed for want of money.

    A keeper learns of a longer lease a second after it was written.
    """
    deadlines_ns = {each.attempt_id: each.deadline_boot_ns for each in books.open_on("host")}
    natural_ns = dict(zip(deadlines_ns, ends_ns, strict=True))
    killed, now_ns = 0, 0
    while books.open_on("host"):
        now_ns += SECOND
        for attempt, then, at_ns in _over(books, natural_ns, deadlines_ns, now_ns):
            killed += then is EndReason.RUN_EXHAUSTED
            books.close(attempt.attempt_id, "worker", End(at_ns, "boot", then), now_ns)
        deadlines_ns = {each.attempt_id: each.deadline_boot_ns for each in books.open_on("host")}
        books.settle("run")
        books.share("run", now_ns)
    return killed


def _over(
    books: Books, natural_ns: dict[str, int], deadlines_ns: dict[str, int], now_ns: int
) -> Iterator[tuple[Attempt, EndReason, int]]:
    for attempt in books.open_on("host"):
        killed_ns = deadlines_ns[attempt.attempt_id] - KILL_MARGIN_NS
        ended_ns = natural_ns[attempt.attempt_id]
        if min(killed_ns, ended_ns) <= now_ns:
            passed = ended_ns <= killed_ns
            then = EndReason.COMMAND_PASSED if passed else EndReason.RUN_EXHAUSTED
            yield attempt, then, min(killed_ns, ended_ns)
