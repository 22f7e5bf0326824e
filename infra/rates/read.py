"""How a card's file is read: strictly, and with all that is wrong with it said at once."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from app.domain.machine import Shape
from app.domain.money import usd_text
from app.domain.rates import Basis, Commitment, Price, StoragePrice
from app.errors import BadRequest
from infra.rates.card import Card, midnight_ns
from infra.rates.derivation import Derivation, Grid, Host, Plan, Storage
from infra.rates.table import Table

MAX_BYTES = 256 * 1024
MAX_ROWS = 500
# Ten times what an hour of the dearest instance costs; times the longest run of the most forks it still is 63 bits.
MAX_USD_PER_HOUR = 10_000
MAX_COMMITTED_USD_PER_HOUR = 1_000_000
MAX_USD_PER_GIB_MONTH = 100
MAX_VCPUS, MAX_MIB, MAX_GIB = 4096, 64 * 1024 * 1024, 64 * 1024

VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,31}")
LINE = re.compile(r"[ -~]{1,200}")
_PLAIN = "letters, digits, dots and dashes, at most"
_FACTS = ("host", "plan", "shapes")
_OWN = "or leave [host], [plan] and [shapes] out to state prices of your own"


def read_card(path: Path) -> Card:
    """The card in a file. Raises BadRequest(bad_rate_card); its details have `problems`, one line each."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise bad_card(str(path), [f"cannot be read: {error.strerror or error}"]) from error
    return parse(content, str(path))


def parse(content: bytes, name: str) -> Card:
    """The card that a file of this content says. Raises like `read_card`; `name` is how the errors call it."""
    top = Table(_document(content, name))
    card = _card(top)
    problems = list(top.problems())
    if problems:
        raise bad_card(name, problems)
    return card


def bad_card(name: str, problems: list[str]) -> BadRequest:
    """The error of a card that cannot be used."""
    more = f" (and {len(problems) - 1} more: `promigence-server rates check` tells all)"
    message = f"rate card {name}: {problems[0]}" + (more if len(problems) > 1 else "")
    return BadRequest("bad_rate_card", message, problems=tuple(problems))


def problems_of(refused: BadRequest) -> tuple[str, ...]:
    """All that a refused card's error knows, a line each."""
    problems = refused.details["problems"]
    assert isinstance(problems, tuple)
    return problems


def _document(content: bytes, name: str) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise bad_card(name, [f"is larger than the {MAX_BYTES} bytes that a card may have"])
    try:
        # Money is never a binary float, not even on its way.
        return tomllib.loads(content.decode(), parse_float=_decimal)
    except (ValueError, RecursionError) as error:
        raise bad_card(name, [f"is not TOML: {error}"]) from error


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        # An exponent beyond what Decimal has: as good as no number, and refused as one where it stands.
        return Decimal("NaN")


def _card(top: Table) -> Card:
    version = top.text("version", VERSION, f"{_PLAIN} 80")
    top.choice("currency", ("USD",))
    region = top.text("region", NAME, f"a region's name, like us-east-1: small {_PLAIN} 32")
    priced_at = top.day("priced_at")
    basis = Basis(top.choice("basis", [basis.value for basis in Basis]))
    facts = _derivation(top)
    commitment = _commitment(top.table("commitment"), facts) if top.has("commitment") else None
    storage = _storage(top.table("storage")) if top.has("storage") else None
    prices = _prices(top, facts)
    return Card(version, region, priced_at, basis, prices, facts, commitment, storage)


def _derivation(top: Table) -> Derivation | None:
    """The facts behind the rows, where the card states them: all three tables or none; None too if any is wrong."""
    if not any(top.has(name) for name in _FACTS):
        return None
    tables = [top.table(name) for name in _FACTS]
    host, plan, grid = tables
    facts = Derivation(_host(host), _plan(plan), _grid(grid))
    if not all(table.sound for table in tables):
        return None
    if facts.plan.micros_of(facts.host) > facts.host.micros_per_hour:
        plan.fault("usd_per_hour", "is above the price on demand, host.usd_per_hour")
    if not facts.prices():
        grid.fault("vcpus", "not one of the shapes fits on the host")
    return facts


def _host(table: Table) -> Host:
    return Host(
        instance=table.text("instance", NAME, f"an instance type: small {_PLAIN} 32"),
        vcpus=table.whole("vcpus", 1, MAX_VCPUS),
        memory_mib=table.whole("memory_mib", 128, MAX_MIB),
        micros_per_hour=table.usd("usd_per_hour", MAX_USD_PER_HOUR),
        source=table.text(
            "source", LINE, "where the price is from: one line of ASCII, at most 200"
        ),
        reserved_mib=table.whole("reserved_mib", 0, MAX_MIB),
        machine_overhead_mib=table.whole("machine_overhead_mib", 0, MAX_MIB),
    )


def _plan(table: Table) -> Plan:
    percent, amount = table.has("percent"), table.has("usd_per_hour")
    if percent == amount:
        table.fault("percent", "write either percent or usd_per_hour")
        return Plan(percent=100)
    if percent:
        return Plan(percent=table.whole("percent", 1, 100))
    return Plan(micros_per_hour=table.usd("usd_per_hour", MAX_USD_PER_HOUR))


def _grid(table: Table) -> Grid:
    return Grid(
        vcpus=table.wholes("vcpus", 1, MAX_VCPUS),
        mib_per_vcpu=table.wholes("mib_per_vcpu", 64, MAX_MIB),
        disk_gib=table.whole("disk_gib", 1, MAX_GIB),
    )


def _commitment(table: Table, facts: Derivation | None) -> Commitment:
    bought = Commitment(
        vcpus=table.whole("vcpus", 1, 1_000_000),
        micros_per_hour=table.usd("usd_per_hour", MAX_COMMITTED_USD_PER_HOUR),
        begins_ns=midnight_ns(table.day("begins")),
        ends_ns=midnight_ns(table.day("ends")),
    )
    if not table.sound:
        return bought
    if bought.ends_ns <= bought.begins_ns:
        table.fault("ends", "must be a day after begins")
    if facts is not None and bought.micros_per_hour > facts.on_demand_micros(bought.vcpus):
        table.fault("usd_per_hour", f"is above what {bought.vcpus} vCPUs cost on demand")
    return bought


def _storage(table: Table) -> Storage:
    return Storage(
        StoragePrice(
            table.usd("volume_usd_per_gib_month", MAX_USD_PER_GIB_MONTH),
            table.usd("snapshot_usd_per_gib_month", MAX_USD_PER_GIB_MONTH),
        ),
        table.text("source", LINE, "where the prices are from: one line of ASCII, at most 200"),
    )


def _prices(top: Table, facts: Derivation | None) -> tuple[Price, ...]:
    rows = [(table, _price(table)) for table in top.tables("price", MAX_ROWS)]
    sound = [(table, price) for table, price in rows if table.sound]
    priced: dict[Shape, str] = {}
    for table, price in sound:
        if price.committed_micros_per_hour > price.on_demand_micros_per_hour:
            table.fault("committed_usd", "is above on_demand_usd: a commitment is never dearer")
        if price.shape in priced:
            table.fault("shape", f"is priced in {priced[price.shape]} already: leave one out")
        priced.setdefault(price.shape, table.path)
        if facts is not None:
            _hold_against(table, price, facts)
    if facts is not None and rows and len(sound) == len(rows):
        missing = (row.shape for row in facts.prices() if row.shape not in priced)
        for shape in missing:
            top.fault(
                "price", f"{shape} is missing, which [shapes] says the card has: add it, {_OWN}"
            )
    return tuple(price for _, price in rows)


def _hold_against(table: Table, price: Price, facts: Derivation) -> None:
    """A row is what its facts give: neither is changed without the other."""
    due = facts.price(price.shape)
    if due is None:
        table.fault("shape", f"does not fit on the host: leave it out, {_OWN}")
        return
    for key, said, given in (
        ("committed_usd", price.committed_micros_per_hour, due.committed_micros_per_hour),
        ("on_demand_usd", price.on_demand_micros_per_hour, due.on_demand_micros_per_hour),
    ):
        if said != given:
            table.fault(
                key,
                f"is {usd_text(said)}, [host] and [plan] give {usd_text(given)}: derive it anew, {_OWN}",
            )


def _price(table: Table) -> Price:
    shape = table.table("shape")
    return Price(
        Shape(
            shape.whole("vcpus", 1, MAX_VCPUS),
            shape.whole("memory_mib", 64, MAX_MIB),
            shape.whole("disk_gib", 1, MAX_GIB),
        ),
        table.usd("committed_usd", MAX_USD_PER_HOUR),
        table.usd("on_demand_usd", MAX_USD_PER_HOUR),
    )
