"""`promigence-server rates`: what a fork-hour costs, whether a card can be used, and cards from instance prices."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer

from app.domain.money import MICROS_PER_USD, exact_micros_of_usd, usd_text
from app.domain.rates import Basis, Commitment, StoragePrice
from app.errors import BadRequest
from infra import rates as cards
from infra.settings import load
from workers.command import HERE, Dir, Json
from workers.table import table

BAD = 1
COLUMNS = ("vCPU", "MiB", "GiB of disk", "forks on a host", "committed", "on demand")
OWN_SOURCE = "as given to `promigence-server rates derive`"

rates = typer.Typer(no_args_is_help=True, help="Rate cards: what a fork-hour of each shape costs.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="A card's TOML file.")]


@rates.command()
def check(file: File) -> None:
    """Say whether a card can be used. Exit code 1 when it cannot, with a line for each thing that is wrong with it."""
    try:
        card = cards.read_card(file)
    except BadRequest as refused:
        for problem in cards.problems_of(refused):
            typer.echo(f"{file}: {problem}", err=True)
        raise typer.Exit(BAD) from None
    typer.echo(f"{file}: good; {card.version}, {card.basis.value}, prices: {len(card.prices)}")


@rates.command()
def show(
    card: Annotated[
        str | None,
        typer.Argument(
            metavar="CARD",
            help="A file, or the word of a card that ships; without it, the one in force.",
        ),
    ] = None,
    directory: Dir = HERE,
    as_json: Json = False,
) -> None:
    """Show a card. The one in force is what a stack in this directory reads when it starts."""
    shown = cards.card_of(load(directory).rate_card if card is None else card)
    if as_json:
        typer.echo(json.dumps(_as_dict(shown), indent=2))
        return
    typer.echo(f"{shown.version}: USD a fork-hour, {shown.basis.value}")
    typer.echo(_table(shown))
    typer.echo(_priced(shown))
    typer.echo(_bought(shown.commitment) if shown.commitment else "no commitment")
    typer.echo(_kept(shown.storage) if shown.storage else "no prices of storage")


@rates.command()
def derive(
    instance: Annotated[str, typer.Option(help="The instance type of the hosts.")],
    usd_per_hour: Annotated[
        str | None, typer.Option(help="What an hour of it costs on demand, if not the list price.")
    ] = None,
    vcpus: Annotated[int | None, typer.Option(min=1)] = None,
    memory_gib: Annotated[int | None, typer.Option(min=1)] = None,
    source: Annotated[str | None, typer.Option(help="Where that price is from.")] = None,
    region: Annotated[str, typer.Option(help="Where that price holds.")] = cards.REGION,
    priced_at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], help="The date of the price; of one of your own, today."
        ),
    ] = None,
    basis: Annotated[Basis, typer.Option(help="What runs are priced at.")] = Basis.COMMITTED,
    plan_percent: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="A committed hour, in percent of one on demand."),
    ] = None,
    plan_usd_per_hour: Annotated[
        str | None, typer.Option(help="Or what a committed hour of the instance costs.")
    ] = None,
    vcpus_committed: Annotated[
        int | None, typer.Option(min=1, help="vCPU-hours bought for every hour.")
    ] = None,
    committed_from: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="First day; without it, that of the price."),
    ] = None,
    committed_until: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="The day after the last; a year later."),
    ] = None,
    volume_usd_per_gib_month: Annotated[
        str | None, typer.Option(help="A GiB of volumes for a month, if not the list price.")
    ] = None,
    snapshot_usd_per_gib_month: Annotated[
        str | None, typer.Option(help="A GiB of snapshots for a month, if not the list price.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="Without it, one that ends in a digest of the card.")
    ] = None,
) -> None:
    """Print the card that follows from an instance's price and the forks that fit on it."""
    host = _host(instance, usd_per_hour, vcpus, memory_gib, source)
    facts = cards.Derivation(host, _plan(plan_percent, plan_usd_per_hour))
    day = _day(priced_at) or (cards.PRICED_AT if usd_per_hour is None else _today())
    bought = None
    if vcpus_committed is not None:
        begins = _day(committed_from) or day
        ends = _day(committed_until) or _a_year_after(begins)
        bought = cards.bought(facts, vcpus_committed, begins, ends)
    elif committed_from or committed_until:
        raise typer.BadParameter("a commitment has --vcpus-committed")
    storage = _storage(region, volume_usd_per_gib_month, snapshot_usd_per_gib_month)
    text = cards.written(cards.derived(facts, region, day, basis, bought, version, storage))
    # What the options made is held to the same rules as a file that somebody wrote.
    cards.parse(text.encode(), "as derived")
    typer.echo(text, nl=False)


def _host(
    instance: str,
    usd_per_hour: str | None,
    vcpus: int | None,
    memory_gib: int | None,
    source: str | None,
) -> cards.Host:
    """The facts that were given, and for the rest the list's."""
    said: dict[str, object] = {}
    if vcpus is not None:
        said["vcpus"] = vcpus
    if memory_gib is not None:
        said["memory_mib"] = memory_gib * 1024
    if usd_per_hour is not None:
        said["micros_per_hour"] = exact_micros_of_usd("--usd-per-hour", usd_per_hour)
        said["source"] = OWN_SOURCE
    if source is not None:
        said["source"] = source
    if said.keys() >= {"vcpus", "memory_mib", "micros_per_hour"}:
        return cards.Host(instance, **said)  # type: ignore[arg-type]
    return replace(cards.listed_host(instance), **said)  # type: ignore[arg-type]


def _plan(percent: int | None, usd_per_hour: str | None) -> cards.Plan:
    if percent is not None and usd_per_hour is not None:
        raise typer.BadParameter("give --plan-percent or --plan-usd-per-hour, not both")
    if usd_per_hour is not None:
        return cards.Plan(micros_per_hour=exact_micros_of_usd("--plan-usd-per-hour", usd_per_hour))
    return cards.Plan(percent=cards.PLAN_PERCENT if percent is None else percent)


def _storage(region: str, volume: str | None, snapshot: str | None) -> cards.Storage | None:
    """What was given, and for the rest the list's, which holds in one region; None where nothing is known."""
    listed = cards.STORAGE if region == cards.REGION else None
    if volume is None and snapshot is None:
        return listed
    given = {
        "volume_micros_per_gib_month": ("--volume-usd-per-gib-month", volume),
        "snapshot_micros_per_gib_month": ("--snapshot-usd-per-gib-month", snapshot),
    }
    said = {
        key: exact_micros_of_usd(option, amount)
        for key, (option, amount) in given.items()
        if amount is not None
    }
    if listed is not None:
        return cards.Storage(replace(listed.price, **said), OWN_SOURCE)
    if len(said) < len(given):
        raise typer.BadParameter(f"of {region} no list price is known: give both prices of storage")
    return cards.Storage(StoragePrice(**said), OWN_SOURCE)


def _today() -> date:
    return datetime.now(UTC).date()


def _day(said: datetime | None) -> date | None:
    return None if said is None else said.date()


def _a_year_after(day: date) -> date:
    """The same day of the next year; after a leap day, the first of March."""
    try:
        return day.replace(year=day.year + 1)
    except ValueError:
        return date(day.year + 1, 3, 1)


def _table(card: cards.Card) -> str:
    host = card.derivation.host if card.derivation else None
    rows = [
        (
            *astuple(price.shape),
            None if host is None else host.forks(price.shape),
            f"{price.committed_micros_per_hour / MICROS_PER_USD:.6f}",
            f"{price.on_demand_micros_per_hour / MICROS_PER_USD:.6f}",
        )
        for price in card.prices
    ]
    return table(COLUMNS, rows)


def _priced(card: cards.Card) -> str:
    said = f"prices of {card.priced_at}, {card.region}"
    if card.derivation is None:
        return said
    host = card.derivation.host
    return (
        f"{said}; {host.instance} at {usd_text(host.micros_per_hour)} USD an hour on demand "
        f"and {usd_text(card.derivation.plan.micros_of(host))} committed ({host.source})"
    )


def _bought(commitment: Commitment) -> str:
    return (
        f"commitment: {commitment.vcpus} vCPUs for {usd_text(commitment.micros_per_hour)} USD "
        f"an hour, {cards.day_of(commitment.begins_ns)} to {cards.day_of(commitment.ends_ns)}"
    )


def _kept(storage: cards.Storage) -> str:
    price = storage.price
    return (
        f"storage: {usd_text(price.volume_micros_per_gib_month)} USD a GiB-month of volumes, "
        f"{usd_text(price.snapshot_micros_per_gib_month)} of snapshots ({storage.source})"
    )


def _as_dict(card: cards.Card) -> dict[str, object]:
    """The JSON shape of `show`; amounts as texts, exactly."""
    bought, kept = card.commitment, card.storage
    return {
        "version": card.version,
        "currency": "USD",
        "region": card.region,
        "priced_at": str(card.priced_at),
        "basis": card.basis.value,
        "instance": card.derivation.host.instance if card.derivation else None,
        "prices": [
            {
                **asdict(price.shape),
                "committed_usd": usd_text(price.committed_micros_per_hour),
                "on_demand_usd": usd_text(price.on_demand_micros_per_hour),
            }
            for price in card.prices
        ],
        "commitment": None if bought is None else _bought_as_dict(bought),
        "storage": None if kept is None else _kept_as_dict(kept),
    }


def _kept_as_dict(kept: cards.Storage) -> dict[str, object]:
    return {
        "volume_usd_per_gib_month": usd_text(kept.price.volume_micros_per_gib_month),
        "snapshot_usd_per_gib_month": usd_text(kept.price.snapshot_micros_per_gib_month),
    }


def _bought_as_dict(bought: Commitment) -> dict[str, object]:
    return {
        "vcpus": bought.vcpus,
        "usd_per_hour": usd_text(bought.micros_per_hour),
        "begins": str(cards.day_of(bought.begins_ns)),
        "ends": str(cards.day_of(bought.ends_ns)),
    }
