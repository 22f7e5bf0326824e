"""Integer micro-dollars, and the one rounding rule: up, once per attempt.

Rounding each one-second tick up would overbill by 0.8 % at 0.05 USD an hour; so a duration is priced once, at its end.
"""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal

from app.errors import BadRequest

MICROS_PER_USD = 1_000_000
NS_PER_SECOND = 1_000_000_000
NS_PER_HOUR = 3600 * NS_PER_SECOND
MAX_USD = Decimal(100_000_000)
_MICRO = Decimal("0.000001")
# `Decimal` reads "1_000", " 1 " and digits of every script; a cap that two readers take for two amounts is none.
_PLAIN = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?")


def cost_micros(duration_ns: int, micros_per_hour: int) -> int:
    """Price of `duration_ns` at a rate, rounded up to a whole micro-dollar."""
    if duration_ns < 0 or micros_per_hour < 0:
        raise ValueError("durations and rates are never negative")
    return -(-duration_ns * micros_per_hour // NS_PER_HOUR)


def affordable_ns(micros: int, micros_per_hour: int) -> int:
    """The longest duration whose `cost_micros` is at most `micros`; the inverse of the rounding rule."""
    if micros_per_hour <= 0:
        raise ValueError("a rate is positive")
    return micros * NS_PER_HOUR // micros_per_hour


def micros_of_usd(name: str, usd: object, most: Decimal = MAX_USD) -> int:
    """A positive amount of USD as micro-dollars, rounded down: a cap is never widened by rounding.

    A number, or a text of plain digits with at most one point: what other languages read as a number too. Raises
    BadRequest(bad_request) for what is not a finite number of at least one micro-dollar and at most `most` USD.
    """
    return int(_amount(name, usd, most).quantize(_MICRO, ROUND_DOWN).scaleb(6))


def exact_micros_of_usd(name: str, usd: object, most: Decimal = MAX_USD) -> int:
    """The same for a price, which nobody may round: more than six decimals are refused."""
    amount = _amount(name, usd, most)
    if amount != amount.quantize(_MICRO, ROUND_DOWN):
        raise BadRequest("bad_request", f"{name} must have at most six decimals", field=name)
    return micros_of_usd(name, amount, most)


def usd(micros: int) -> float:
    """Micro-dollars as USD for JSON: the nearest float, exact to six decimals up to nine billion USD."""
    return round(micros / MICROS_PER_USD, 6)


def usd_text(micros: int) -> str:
    """Micro-dollars as USD in plain digits, exactly: at least one decimal, at most six."""
    whole, rest = divmod(micros, MICROS_PER_USD)
    decimals = f"{rest:06d}".rstrip("0") or "0"
    return f"{whole}.{decimals}"


def _amount(name: str, usd: object, most: Decimal) -> Decimal:
    """The amount exactly as it was written, within its bounds."""
    amount = _number(usd)
    if amount is None:
        raise BadRequest(
            "bad_request", f"{name} must be USD in plain digits, such as 2.50", field=name
        )
    if not amount.is_finite() or amount <= 0 or amount > most:
        raise BadRequest(
            "bad_request", f"{name} must be above 0 and at most {most} USD", field=name
        )
    if amount < _MICRO:
        raise BadRequest("bad_request", f"{name} is below one micro-dollar", field=name)
    return amount


def _number(usd: object) -> Decimal | None:
    if isinstance(usd, bool):
        return None
    if isinstance(usd, int | Decimal):
        return Decimal(usd)
    if isinstance(usd, float):
        # What a person wrote, not the binary fraction nearest to it.
        return Decimal(float.__repr__(usd))
    if isinstance(usd, str) and _PLAIN.fullmatch(usd):
        return Decimal(usd)
    return None
