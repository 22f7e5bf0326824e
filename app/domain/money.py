"""Integer micro-dollars, and the one rounding rule: up, once per attempt.

Rounding each one-second tick up would overbill by 0.8 % at 0.05 USD an hour; so a duration is priced once, at its end.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from app.errors import BadRequest

MICROS_PER_USD = 1_000_000
NS_PER_SECOND = 1_000_000_000
NS_PER_HOUR = 3600 * NS_PER_SECOND
MAX_USD = Decimal(100_000_000)


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


def micros_of_usd(name: str, usd: object) -> int:
    """A positive amount of USD as micro-dollars, rounded down: a cap is never widened by rounding.

    Raises BadRequest(bad_request) for what is not a finite number of at least one micro-dollar.
    """
    if isinstance(usd, bool) or not isinstance(usd, int | float | str | Decimal):
        raise BadRequest("bad_request", f"{name} must be a number of USD", field=name)
    try:
        amount = Decimal(str(usd))
    except InvalidOperation:
        raise BadRequest("bad_request", f"{name} must be a number of USD", field=name) from None
    if not amount.is_finite() or amount <= 0 or amount > MAX_USD:
        raise BadRequest(
            "bad_request", f"{name} must be above 0 and at most {MAX_USD} USD", field=name
        )
    micros = int(amount * MICROS_PER_USD)
    if micros < 1:
        raise BadRequest("bad_request", f"{name} is below one micro-dollar", field=name)
    return micros


def usd(micros: int) -> float:
    """Micro-dollars as USD for JSON: the nearest float, exact to six decimals up to nine billion USD."""
    return round(micros / MICROS_PER_USD, 6)
