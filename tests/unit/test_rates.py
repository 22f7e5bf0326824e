"""What a fork-hour costs: the arithmetic by hand, the cards that ship, and a file that is wrong in any way."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.machine import Shape
from app.domain.money import NS_PER_HOUR, cost_micros, usd_text
from app.domain.rates import Basis, Commitment
from app.errors import BadRequest, NotFound
from infra import rates
from infra.rates.read import MAX_BYTES, MAX_USD_PER_HOUR

OWN = """\
version = "ours-1"
currency = "USD"
region = "eu-central-1"
priced_at = 2026-07-01
basis = "on_demand"

[commitment]
vcpus = 64
usd_per_hour = 2.5
begins = 2026-08-01
ends = 2027-08-01

[[price]]
shape = { vcpus = 1, memory_mib = 1024, disk_gib = 8 }
committed_usd = 0.1
on_demand_usd = 0.30000
"""
AUGUST_2026_NS = 1_785_542_400 * 1_000_000_000
M8I = rates.Derivation(rates.listed_host("m8i.4xlarge"), rates.Plan(percent=73))


def _problems(text: str | bytes) -> list[str]:
    content = text.encode() if isinstance(text, str) else text
    with pytest.raises(BadRequest) as refused:
        rates.parse(content, "card.toml")
    assert refused.value.code == "bad_rate_card"
    problems = rates.problems_of(refused.value)
    assert refused.value.message.startswith(f"rate card card.toml: {problems[0]}")
    return list(problems)


@pytest.mark.parametrize(
    ("shape", "forks", "committed", "on_demand"),
    [
        # 16 processors: 846,700 / 16 = 52,918.75; 73 % of the host is 618,091, and a sixteenth of it 38,630.7.
        (Shape(1, 512, 64), 16, 38_631, 52_919),
        # (1,024 + 64) MiB of 61,440 for 56 machines; processors decide.
        (Shape(1, 1024, 64), 16, 38_631, 52_919),
        # (4,096 + 64) MiB: 14.8 of them, so 14; 846,700 / 14 = 60,478.6 and 618,091 / 14 = 44,149.4.
        (Shape(1, 4096, 64), 14, 44_150, 60_479),
        # (8,192 + 64) MiB: 7.4 of them.
        (Shape(1, 8192, 64), 7, 88_299, 120_958),
        (Shape(8, 16384, 64), 2, 309_046, 423_350),
        # One alone on its host costs the host.
        (Shape(8, 32768, 64), 1, 618_091, 846_700),
    ],
)
def test_a_fork_costs_its_host_by_the_forks_that_fit(
    shape: Shape, forks: int, committed: int, on_demand: int
) -> None:
    price = M8I.price(shape)

    assert M8I.host.forks(shape) == forks
    assert price is not None
    assert (price.committed_micros_per_hour, price.on_demand_micros_per_hour) == (
        committed,
        on_demand,
    )


@pytest.mark.parametrize("name", rates.SHIPPED)
def test_a_host_that_is_full_pays_for_itself_and_not_more_than_rounding(name: str) -> None:
    card = rates.shipped_card(name)
    assert card.derivation is not None
    host, plan = card.derivation.host, card.derivation.plan

    for price in card.prices:
        forks = host.forks(price.shape)
        assert 0 <= price.on_demand_micros_per_hour * forks - host.micros_per_hour < forks
        assert 0 <= price.committed_micros_per_hour * forks - plan.micros_of(host) < forks


@pytest.mark.parametrize("name", rates.SHIPPED)
def test_more_of_a_machine_never_costs_less_and_a_commitment_never_more(name: str) -> None:
    prices = rates.shipped_card(name).prices

    assert all(p.committed_micros_per_hour <= p.on_demand_micros_per_hour for p in prices)
    for small in prices:
        for large in prices:
            if (
                small.shape.vcpus <= large.shape.vcpus
                and small.shape.memory_mib <= large.shape.memory_mib
            ):
                assert small.on_demand_micros_per_hour <= large.on_demand_micros_per_hour


def test_what_does_not_fit_has_no_price() -> None:
    assert M8I.host.forks(Shape(17, 512, 64)) == 0
    assert M8I.price(Shape(1, 60 * 1024, 64)) is None
    with pytest.raises(BadRequest, match="no price for 8 vCPU, 65536 MiB, 4 GiB of disk"):
        rates.shipped_card("m8i").rates().rate(Shape(8, 64 * 1024, 4))


def test_a_shape_that_is_not_listed_costs_what_the_next_above_it_costs() -> None:
    card = rates.shipped_card("m8i").rates()

    assert card.rate(Shape(1, 700, 10)).micros_per_hour == 38_631
    assert card.rate(Shape(3, 512, 4)).micros_per_hour == 154_523
    assert card.rate(Shape(3, 512, 4), Basis.ON_DEMAND).micros_per_hour == 211_675


def test_the_card_in_force_is_the_one_for_m8i_unless_another_is_said(tmp_path: Path) -> None:
    own = tmp_path / "c8i"
    own.write_text(OWN)

    assert rates.card_of(None) == rates.shipped_card("m8i")
    assert rates.card_of("c8i") == rates.shipped_card("c8i")
    assert rates.card_of(str(own)).version == "ours-1"
    with pytest.raises(NotFound, match=r"there are m8i, c8i, r8i"):
        rates.card_of("m9i")


@pytest.mark.parametrize(
    ("name", "vcpus", "memory_gib", "micros"),
    [("m8i", 16, 64, 846_700), ("c8i", 16, 32, 749_700), ("r8i", 16, 128, 1_111_400)],
)
def test_a_shipped_card_says_what_its_host_is_and_costs(
    name: str, vcpus: int, memory_gib: int, micros: int
) -> None:
    card = rates.shipped_card(name)
    assert card.derivation is not None
    host = card.derivation.host

    assert host.instance == f"{name}.4xlarge"
    assert (host.vcpus, host.memory_mib, host.micros_per_hour) == (vcpus, memory_gib << 10, micros)
    assert (card.region, card.priced_at) == ("us-east-1", date(2026, 7, 1))
    assert re.fullmatch(
        rf"2026-07-us-east-1-{name}\.4xlarge-[0-9a-f]{{8}}", card.rates().rate(_SMALL).card_version
    )


_SMALL = Shape(1, 512, 4)


def test_a_card_is_read_as_it_was_written() -> None:
    bought = rates.bought(M8I, 64, date(2026, 8, 1), date(2027, 8, 1))
    card = rates.derived(
        M8I, "us-east-1", date(2026, 7, 1), Basis.ON_DEMAND, bought, storage=rates.STORAGE
    )

    assert rates.parse(rates.written(card).encode(), "card.toml") == card
    # 64 of 16 vCPUs are four hosts under the plan.
    assert card.rates().commitment == Commitment(
        64, 4 * 618_091, AUGUST_2026_NS, AUGUST_2026_NS + 365 * 24 * NS_PER_HOUR
    )


def test_two_cards_that_differ_in_anything_have_two_versions() -> None:
    day = date(2026, 7, 1)
    plans = [rates.Plan(percent=73), rates.Plan(percent=72), rates.Plan(micros_per_hour=618_091)]
    facts = [rates.Derivation(M8I.host, plan) for plan in plans]
    made = [rates.derived(each, "us-east-1", day) for each in facts]
    made.append(rates.derived(M8I, "us-east-1", day, Basis.ON_DEMAND))
    made.append(
        rates.derived(M8I, "us-east-1", day, commitment=rates.bought(M8I, 1, day, date(2027, 7, 1)))
    )
    made.append(rates.derived(M8I, "us-east-1", day, storage=rates.STORAGE))

    assert len({card.version for card in made}) == len(made)
    assert rates.derived(M8I, "us-east-1", day).version == made[0].version


def test_an_operators_own_prices_are_read_exactly() -> None:
    card = rates.parse(OWN.encode(), "card.toml").rates()

    rate = card.rate(_SMALL)
    assert (rate.micros_per_hour, rate.basis, rate.card_version) == (
        300_000,
        Basis.ON_DEMAND,
        "ours-1",
    )
    assert card.rate(_SMALL, Basis.COMMITTED).micros_per_hour == 100_000
    assert card.commitment is not None
    assert card.commitment.begins_ns == AUGUST_2026_NS


def test_the_dearest_run_of_a_card_is_counted_in_63_bits() -> None:
    """Ten replacements of a week's command and a week's grade, 5,000 forks of them: a database holds no more."""
    hours = 11 * (2 * 7 * 24 + 8 * 24)
    assert cost_micros(hours * NS_PER_HOUR, MAX_USD_PER_HOUR * 10**6) * 5000 < 2**63


BAD_MONEY = (
    *("0", "0.0", "-0.1", "nan", "inf", "-inf", "+nan", "1e400", "1e99999999999999999999"),
    *("10000.1", "9" * 400, "0x" + "f" * 9000, "0.0000001", "0.1234567"),
    *('"0.1"', '"abc"', "true", "[]", "{}", "2026-07-01"),
)


@pytest.mark.parametrize("bad", BAD_MONEY, ids=range(len(BAD_MONEY)))
@pytest.mark.parametrize(
    ("old", "key"),
    [
        ("committed_usd = 0.1", "price[1].committed_usd"),
        ("on_demand_usd = 0.30000", "price[1].on_demand_usd"),
    ],
)
def test_a_price_that_is_none_is_named(old: str, key: str, bad: str) -> None:
    (problem,) = _problems(OWN.replace(old, f"{old.partition(' = ')[0]} = {bad}"))

    assert problem.startswith(f"{key}: ")
    assert "will not do: write a number of USD above 0, at most 10000" in problem
    assert len(problem) < 250


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('version = "ours-1"\n', "", "version: is missing"),
        ('"ours-1"', '""', 'version: "" will not do'),
        ('"ours-1"', '"' + "v" * 81 + '"', "version: "),
        ('"ours-1"', '"a b"', 'version: "a b" will not do'),
        ('"ours-1"', '"\\u001b[31m"', "version: "),
        ('"ours-1"', "7", "version: 7 will not do"),
        ('"USD"', '"EUR"', 'currency: "EUR" will not do: write "USD"'),
        ('"eu-central-1"', '"EU Central"', "region: "),
        ("priced_at = 2026-07-01", 'priced_at = "2026-07-01"', "priced_at: "),
        ("priced_at = 2026-07-01", "priced_at = 1026-07-01", "priced_at: 1026-07-01 will not do"),
        ("priced_at = 2026-07-01", "priced_at = 2026-07-01T00:00:00Z", "priced_at: "),
        ('"on_demand"', '"barter"', 'basis: "barter" will not do: write "committed" or "on_'),
        ("vcpus = 1,", "vcpus = 0,", "price[1].shape.vcpus: 0 will not do"),
        ("vcpus = 1,", "vcpus = -1,", "price[1].shape.vcpus: -1 will not do"),
        ("vcpus = 1,", "vcpus = 1.5,", "price[1].shape.vcpus: 1.5 will not do"),
        ("vcpus = 1,", "vcpus = true,", "price[1].shape.vcpus: true will not do"),
        ("vcpus = 1, ", "", "price[1].shape.vcpus: is missing"),
        ("memory_mib = 1024", "memory_mib = 1e3", "price[1].shape.memory_mib: 1E+3 will not do"),
        ("disk_gib = 8", "disk = 8", "price[1].shape.disk_gib: is missing"),
        ("shape = {", "shpae = {", "price[1].shape: is missing"),
        ("committed_usd = 0.1", "committed_usd = 0.4", "price[1].committed_usd: is above on_demand"),
        ("committed_usd = 0.1", "commited_usd = 0.1", "price[1].commited_usd: is not known; did you"),
        ("[[price]]", "[price]", "price: a table will not do: write 1 to 500 tables"),
        ("vcpus = 64", "vcpus = 0", "commitment.vcpus: 0 will not do"),
        ("usd_per_hour = 2.5", "usd_per_hour = -2.5", "commitment.usd_per_hour: -2.5 will not do"),
        ("ends = 2027-08-01", "ends = 2026-08-01", "commitment.ends: must be a day after begins"),
        ("ends = 2027-08-01", "ends = 2027-13-01", "is not TOML: "),
        ("[commitment]", "[comitment]", "comitment: is not known; did you mean commitment?"),
        ("basis =", "comment = 1\nbasis =", "comment: is not known"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_card_is_named_with_its_key(old: str, new: str, problem: str) -> None:
    assert OWN.count(old) == 1
    assert any(each.startswith(problem) for each in _problems(OWN.replace(old, new)))


def test_all_that_is_wrong_is_said_at_once_and_nothing_that_only_follows_from_it() -> None:
    wrong = (
        OWN.replace('"USD"', '"EUR"').replace("0.30000", "-1").replace("vcpus = 64", "vcpus = 0")
    )
    assert [each.partition(":")[0] for each in _problems(wrong + "typo = 1\n")] == [
        "currency",
        "commitment.vcpus",
        "price[1].on_demand_usd",
        "price[1].typo",
    ]


def test_a_shape_has_one_price() -> None:
    row = OWN[OWN.index("[[price]]") :]
    assert _problems(OWN + row) == ["price[2].shape: is priced in price[1] already: leave one out"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not toml",
        b'{"version": "ours-1", "prices": []}',
        b"\xff\xfe",
        b"a = " + b"[" * 100_000,
        b"a = " + b"9" * 5000,
        b"a = 1\na = 2",
        b"# " + b"x" * MAX_BYTES,
    ],
    ids=range(8),
)
def test_what_is_no_card_is_refused_whatever_it_is(content: bytes) -> None:
    assert _problems(content)


M8I_TEXT = rates.written(rates.shipped_card("m8i"))
EDITS = st.tuples(
    st.integers(0, 2000),
    st.integers(0, 12),
    st.text(max_size=6)
    | st.sampled_from(
        ["[", "{", "=", '"', "\n", "1e9999", "-1", "nan", "0x" + "f" * 5000, "price"]
    ),
)


@given(st.lists(EDITS, min_size=1, max_size=3))
def test_whatever_was_done_to_a_file_it_is_a_card_or_refused(
    edits: list[tuple[int, int, str]],
) -> None:
    for original in (OWN, M8I_TEXT):
        text = original
        for at, length, new in edits:
            at %= len(text)
            text = text[:at] + new + text[at + length :]
        read = _read(text.encode(errors="surrogatepass"))
        if isinstance(read, rates.Card):
            assert _read(rates.written(read).encode()) == read
        else:
            assert read
            assert not any("\n" in problem for problem in read)


def _read(content: bytes) -> rates.Card | tuple[str, ...]:
    """The card, or all that is wrong with it."""
    try:
        return rates.parse(content, "card.toml")
    except BadRequest as refused:
        return rates.problems_of(refused)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(BadRequest, match=re.escape(f"rate card {path}: cannot be read")):
            rates.read_card(path)


LAST_ROW = M8I_TEXT[M8I_TEXT.rindex("\n[[price]]") :]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (LAST_ROW, "\n", "price: 8 vCPU, 32768 MiB, 64 GiB of disk is missing, which [shapes] says"),
        ("on_demand_usd = 0.060479", "on_demand_usd = 0.06", "price[4].on_demand_usd: is 0.06, "),
        ("usd_per_hour = 0.8467", "usd_per_hour = 0.8468", "price[1].on_demand_usd: is 0.052919"),
        ("percent = 73", "percent = 72", "price[1].committed_usd: is 0.038631, [host] and [plan]"),
        ("percent = 73", "percent = 101", "plan.percent: 101 will not do"),
        ("percent = 73", "percent = 73.5", "plan.percent: 73.5 will not do"),
        ("percent = 73", "", "plan.percent: write either percent or usd_per_hour"),
        ("percent = 73", "percent = 73\nusd_per_hour = 0.6", "plan.percent: write either"),
        ("percent = 73", "usd_per_hour = 0.9", "plan.usd_per_hour: is above the price on demand"),
        ("reserved_mib = 4096", "reserved_mib = 65536", "shapes.vcpus: not one of the shapes fits"),
        ("reserved_mib = 4096", "reserved_mib = 40960", "price[19].shape: does not fit on the host"),
        ("[1, 2, 4, 8]", "[1, 1, 4, 8]", "shapes.vcpus: a list will not do"),
        ("[1, 2, 4, 8]", "[]", "shapes.vcpus: a list will not do"),
        ("[1, 2, 4, 8]", "[1, 2, 4, 0]", "shapes.vcpus: a list will not do"),
        ('instance = "m8i.4xlarge"', "", "host.instance: is missing"),
        ("[plan]\npercent = 73", "", "plan: is missing: write a table"),
    ],
)  # fmt: skip
def test_a_row_is_what_the_facts_beside_it_give(old: str, new: str, problem: str) -> None:
    assert M8I_TEXT.count(old) == 1
    assert any(each.startswith(problem) for each in _problems(M8I_TEXT.replace(old, new)))


def test_a_row_is_held_to_its_facts_whatever_else_is_wrong() -> None:
    wrong = M8I_TEXT.replace('"USD"', '"EUR"').replace("= 0.060479", "= 0.06")
    assert [each.partition(":")[0] for each in _problems(wrong)] == [
        "currency",
        "price[4].on_demand_usd",
    ]


def test_a_commitment_is_never_dearer_than_its_processors_on_demand() -> None:
    bought = rates.bought(M8I, 64, date(2026, 8, 1), date(2027, 8, 1))
    text = rates.written(rates.derived(M8I, "us-east-1", date(2026, 7, 1), commitment=bought))
    # Four hosts on demand are 3.3868 USD an hour.
    dearest = rates.parse(text.replace("2.472364", "3.3868").encode(), "card.toml").commitment
    assert dearest is not None
    assert dearest.micros_per_hour == 3_386_800
    assert _problems(text.replace("2.472364", "3.386801")) == [
        "commitment.usd_per_hour: is above what 64 vCPUs cost on demand"
    ]


def test_the_cards_of_the_documentation_can_be_used() -> None:
    text = (Path(__file__).parents[2] / "docs" / "rates.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)

    card = rates.parse(example.encode(), "docs/rates.md")
    assert card.commitment is not None
    # The figures of its worked example, which stand in the card that ships too.
    row = next(price for price in M8I.prices() if price.shape == Shape(1, 4096, 64))
    for micros in (row.committed_micros_per_hour, row.on_demand_micros_per_hour):
        assert f"{usd_text(micros)} USD |" in text
