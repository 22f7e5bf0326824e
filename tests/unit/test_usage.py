"""Lives cut at the hours, and the estimate of an hour: whatever is divided adds up again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import estimate, usage_statement
from app.domain.cloud import ResourceKind
from app.domain.estimate import Share, Use, divided, spread
from app.domain.instant import instant, read_instant
from app.domain.machine import Shape
from app.domain.money import NS_PER_HOUR, NS_PER_SECOND
from app.domain.rates import Commitment, Price, RateCard, StoragePrice
from app.domain.storage import Kept, pieces
from app.domain.usage import (
    NS_PER_DAY,
    By,
    Cell,
    Spent,
    Stored,
    Used,
    Window,
    by_hour,
    gathered,
    window,
)
from app.errors import BadRequest

HOUR = NS_PER_HOUR
MIDNIGHT = read_instant("now", "2026-11-30")
MICROS = st.integers(0, 10**12)
BEGIN = st.integers(0, 30 * HOUR)
LIVED = st.integers(0, 50 * HOUR) | st.sampled_from([0, 1, HOUR - 1, HOUR, HOUR + 1])
SPENT = st.builds(
    Spent,
    forks=st.integers(0, 1),
    attempts=st.just(1),
    verification_micros=MICROS,
    tasks_micros=MICROS,
    environment_micros=MICROS,
    accruing_micros=MICROS,
)


def cut(begin: int, lived: int, spent: Spent) -> list[tuple[int, Spent]]:
    return list(by_hour(begin, begin + lived, replace(spent, lived_ns=lived)))


@given(BEGIN, LIVED, SPENT)
def test_the_pieces_of_a_life_add_up_to_it(begin: int, lived: int, spent: Spent) -> None:
    pieces = cut(begin, lived, spent)
    assert Spent.total(piece for _, piece in pieces) == replace(spent, lived_ns=lived)
    for hour_ns, piece in pieces:
        inside = min(begin + lived, hour_ns + HOUR) - max(begin, hour_ns)
        assert piece.lived_ns == inside
        assert hour_ns % HOUR == 0
        assert min(piece.verification_micros, piece.tasks_micros, piece.environment_micros) >= 0
        assert piece.accruing_micros >= 0
        assert inside > 0 or lived == 0
    assert [piece.attempts for _, piece in pieces] == [1] + [0] * (len(pieces) - 1)
    assert pieces[0][1].forks == spent.forks


@given(BEGIN, st.integers(1, 50 * HOUR), SPENT)
def test_money_flows_evenly_over_a_life(begin: int, lived: int, spent: Spent) -> None:
    for _, piece in cut(begin, lived, spent):
        even = spent.charged_micros * piece.lived_ns / lived
        assert abs(piece.charged_micros - even) <= 1 + even * 1e-12


def test_verification_comes_first_as_it_was_lived() -> None:
    whole = Spent(verification_micros=300, tasks_micros=700)
    pieces = [piece for _, piece in cut(HOUR // 2, 2 * HOUR, whole)]
    assert [piece.verification_micros for piece in pieces] == [250, 50, 0]
    assert [piece.tasks_micros for piece in pieces] == [0, 450, 250]


def test_an_indivisible_rest_is_spent_in_the_last_hour() -> None:
    pieces = [piece for _, piece in cut(0, 3 * HOUR, Spent(tasks_micros=2))]
    assert [piece.tasks_micros for piece in pieces] == [0, 1, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), SPENT), max_size=20))
def test_cells_are_gathered_by_what_tells_them_apart(
    given_for: list[tuple[int, str, Spent]],
) -> None:
    cells = [Cell(n * HOUR, who, Shape(1, 512, 4), "", spent) for n, who, spent in given_for]
    found = gathered(cells)
    assert len(found) == len({(n, who) for n, who, _ in given_for})
    assert Spent.total(cell.spent for cell in found) == Spent.total(cell.spent for cell in cells)


def test_more_cells_than_can_be_added_up_are_refused() -> None:
    cells = [Cell(n * HOUR, "a", Shape(1, 512, 4), "", Spent()) for n in range(3)]
    assert len(gathered(cells, most=3)) == 3
    with pytest.raises(BadRequest) as refused:
        gathered(cells, most=2)
    assert refused.value.code == "too_many_rows"


PRICE = StoragePrice(80_000, 50_000)
STEPS = st.sampled_from([None, HOUR, NS_PER_DAY])
STORED = st.builds(
    Stored,
    st.sampled_from(ResourceKind),
    st.integers(1, 16_384),
    st.integers(0, 90 * HOUR),
    st.none() | st.integers(0, 99 * HOUR),
    st.just("a"),
    st.just(""),
)


def kept(
    stored: Stored, begin: int, end: int, step: int | None, price: StoragePrice | None = PRICE
) -> list[tuple[int, Kept]]:
    return list(pieces(stored, Window(begin * HOUR, end * HOUR), 80 * HOUR + 7, step, price))


@given(STORED, STEPS, st.integers(0, 50), st.integers(51, 100))
def test_what_is_kept_adds_up_however_it_is_cut(
    stored: Stored, step: int | None, begin: int, end: int
) -> None:
    whole = Kept.total(part for _, part in kept(stored, begin, end, None))
    assert Kept.total(part for _, part in kept(stored, begin, end, step)) == whole
    halves = [*kept(stored, begin, 51, step), *kept(stored, 51, end, step)]
    assert Kept.total(part for _, part in halves) == whole
    until = min(80 * HOUR + 7, end * HOUR, *([] if stored.end_ns is None else [stored.end_ns]))
    there = max(0, until - max(begin * HOUR, stored.begin_ns))
    assert whole.volume_gib_ns + whole.snapshot_gib_ns == stored.size_gib * there
    for at_ns, part in kept(stored, begin, end, step):
        assert begin * HOUR <= at_ns < until
        assert min(part.volume_micros, part.snapshot_micros) >= 0
        if step is not None:
            assert part.volume_gib_ns + part.snapshot_gib_ns <= stored.size_gib * step


def test_a_month_of_what_is_kept_costs_its_price() -> None:
    month = Window(0, 800 * HOUR)
    for kind, micros in ((ResourceKind.VOLUME, 640_000), (ResourceKind.SNAPSHOT, 400_000)):
        stored = Stored(kind, 8, 10 * HOUR, 740 * HOUR, None, "")
        parts = [part for _, part in pieces(stored, month, 800 * HOUR, HOUR, PRICE)]
        assert len(parts) == 730
        total = Kept.total(parts)
        assert total.volume_micros + total.snapshot_micros == micros
    free = Kept.total(part for _, part in pieces(stored, month, 800 * HOUR, None, None))
    assert (free.snapshot_micros, free.snapshot_gib_ns) == (0, 8 * 730 * HOUR)


def test_more_pieces_than_can_be_added_up_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_statement, "MAX_PIECES", 3)
    stored = Stored(ResourceKind.VOLUME, 1, 0, None, None, "")
    card = RateCard("1", ())
    used = Used(4 * HOUR, None, (), (stored,))
    assert len(list(usage_statement.storage(used, Window(0, 3 * HOUR), (By.HOUR,), card))) == 3
    assert len(list(usage_statement.storage(used, Window(0, 4 * HOUR), (By.DAY,), card))) == 1
    with pytest.raises(BadRequest) as refused:
        list(usage_statement.storage(used, Window(0, 4 * HOUR), (By.HOUR,), card))
    assert refused.value.code == "too_many_rows"


WEIGHTS = st.lists(st.integers(0, 10**15), max_size=20)


@given(MICROS, WEIGHTS)
def test_what_is_spread_adds_up_and_follows_the_weights(amount: int, weights: list[int]) -> None:
    parts = spread(amount, weights)
    assert len(parts) == len(weights)
    assert sum(parts) == (amount if weights else 0)
    for part, weight in zip(parts, weights, strict=True):
        if any(weights):
            assert abs(part - amount * weight / sum(weights)) <= 1 + amount * 1e-12


@given(st.builds(Share, MICROS, MICROS, MICROS, MICROS), WEIGHTS.filter(bool))
def test_a_share_in_parts_is_still_the_share(share: Share, weights: list[int]) -> None:
    assert Share.total(divided(share, weights)) == share


USES = st.lists(
    st.builds(
        Use, st.integers(1, 8), st.integers(0, 300 * HOUR), st.none() | st.integers(1, 500_000)
    ),
    max_size=8,
)
COMMITMENTS = st.none() | st.builds(
    Commitment, st.integers(1, 500), st.integers(1, 10**9), st.just(HOUR), st.just(10 * HOUR)
)
PASSED = st.sampled_from([-1, 0, 1, HOUR - 1, HOUR, HOUR + 1, 2 * HOUR]) | st.integers(0, HOUR)


@given(COMMITMENTS, st.sampled_from([0, 1, 5, 9, 10, 11]), PASSED, USES)
def test_an_hour_adds_up(
    commitment: Commitment | None, n: int, passed_ns: int, uses: Sequence[Use]
) -> None:
    hour = estimate.hour(commitment, n * HOUR, passed_ns, uses)
    total = Share.total(hour.shares)
    assert 0 <= hour.used_micros <= hour.committed_micros
    assert total.used_micros == hour.used_micros
    assert 0 <= total.overflow_micros <= total.on_demand_micros
    assert all(share.overflow_micros <= share.on_demand_micros for share in hour.shares)
    if commitment is None or n < 1 or n >= 10:
        assert hour.committed_micros == 0
        assert total.overflow_micros == total.on_demand_micros
    elif passed_ns >= HOUR:
        assert hour.committed_micros == commitment.micros_per_hour
    used_ns = sum(use.vcpus * use.lived_ns for use in uses)
    if hour.committed_micros and used_ns <= commitment_ns(commitment, passed_ns):
        assert total.overflow_micros == 0
    elif hour.committed_micros:
        assert hour.used_micros == hour.committed_micros


def commitment_ns(commitment: Commitment | None, passed_ns: int) -> int:
    assert commitment is not None
    return commitment.vcpus * min(passed_ns, HOUR)


def test_an_hour_in_words() -> None:
    """4 vCPUs at 0.16 USD an hour: one machine of 1 for all of it; then besides it one and a half of 6."""
    commitment = Commitment(4, 160_000, 0, HOUR)
    small = Use(1, HOUR, 50_000)
    quiet = estimate.hour(commitment, 0, HOUR, [small])
    assert (quiet.committed_micros, quiet.used_micros) == (160_000, 40_000)
    assert quiet.shares == (Share(40_000, 0, 50_000),)
    busy = estimate.hour(commitment, 0, HOUR, [small, Use(6, 3 * HOUR // 2, 300_000)])
    # 10 vCPU-hours, 4 of them covered: six tenths of 0.50 USD overflow.
    assert busy.used_micros == busy.committed_micros == 160_000
    assert busy.shares == (Share(16_000, 30_000, 50_000), Share(144_000, 270_000, 450_000))
    half = estimate.hour(commitment, 0, HOUR // 2, [])
    assert (half.committed_micros, half.used_micros) == (80_000, 0)
    for begin_ns, passed_ns, owed in ((-HOUR, HOUR, 0), (0, 3 * HOUR, 160_000), (HOUR, HOUR, 0)):
        hour = estimate.hour(commitment, begin_ns, passed_ns, [])
        assert (hour.committed_micros, hour.used_micros) == (owed, 0)


def test_a_shape_that_the_card_has_no_price_for_is_said_so() -> None:
    card = RateCard("1", (Price(Shape(1, 512, 4), 36_000, 72_000),))
    assert estimate.on_demand_micros_per_hour(card, Shape(1, 512, 4)) == 72_000
    assert estimate.on_demand_micros_per_hour(card, Shape(2, 512, 4)) is None
    hour = estimate.hour(None, 0, HOUR, [Use(2, HOUR, None)])
    assert hour.shares == (Share(0, 0, 0, HOUR),)


def test_a_window_is_whole_hours_up_to_the_present_one() -> None:
    now = MIDNIGHT + HOUR + 5
    asked = window(MIDNIGHT - HOUR - 1, MIDNIGHT + 1, now)
    assert asked == Window(MIDNIGHT - 2 * HOUR, MIDNIGHT + HOUR)
    assert window(MIDNIGHT, MIDNIGHT + 99 * HOUR, now).end_ns == MIDNIGHT + 2 * HOUR
    month = window(None, None, now)
    assert (instant(month.begin_ns)[:10], month.end_ns) == ("2026-11-01", MIDNIGHT + 2 * HOUR)
    assert list(Window(0, 2 * HOUR).hours()) == [0, HOUR]


@pytest.mark.parametrize(
    ("begin", "end", "why"),
    [
        (0, 0, "`from` is not before `until`"),
        (HOUR, 0, "`from` is not before `until`"),
        (51 * HOUR, 99 * HOUR, "`from` has not come yet"),
        (51 * HOUR, None, "`from` has not come yet"),
        (-401 * 24 * HOUR, HOUR, "a statement is of 400 days at most"),
    ],
)
def test_a_window_that_is_none_is_refused(begin: int, end: int | None, why: str) -> None:
    with pytest.raises(BadRequest) as refused:
        window(MIDNIGHT + begin, None if end is None else MIDNIGHT + end, MIDNIGHT + 50 * HOUR)
    assert (refused.value.code, refused.value.message) == ("bad_window", why)


def test_an_instant_is_read_as_it_is_written() -> None:
    assert read_instant("from", "2026-11-30T01:02:03.004Z") == MIDNIGHT + 3723_004 * 10**6
    assert read_instant("from", "2026-11-30T03:00:00+02:00") == MIDNIGHT + HOUR
    assert read_instant("from", "1970-01-01") == 0
    assert read_instant("from", instant(MIDNIGHT + NS_PER_SECOND)) == MIDNIGHT + NS_PER_SECOND


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "neither a date"),
        ("yesterday", "neither a date"),
        ("2026-13-01", "neither a date"),
        ("1.5", "neither a date"),
        ("2026-11-30T01:00:00", "no offset"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        ("0001-01-01T00:00:00+14:00", "before 1970"),
    ],
)
def test_what_is_no_instant_is_refused_by_its_name(text: str, problem: str) -> None:
    with pytest.raises(BadRequest, match=f"until: .*{problem}"):
        read_instant("until", text)
