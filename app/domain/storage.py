"""What the cloud account keeps for a deployment, and what that is estimated to cost: GiB by time, never a charge.

A volume or snapshot costs its size x its time x the rate card's price of a GiB-month of `MONTH_NS`. Of a time that is
cut anywhere, the parts add up: a part is the difference of two sums from the beginning, each rounded down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Self

from app.domain.cloud import ResourceKind
from app.domain.rates import MONTH_NS, StoragePrice
from app.domain.usage import Stored, Window


@dataclass(frozen=True, slots=True)
class Kept:
    """GiB x ns and micro-dollars, of volumes and of snapshots. Without a price the latter are 0."""

    volume_gib_ns: int = 0
    snapshot_gib_ns: int = 0
    volume_micros: int = 0
    snapshot_micros: int = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        parts = tuple(parts)
        return cls(*(sum(getattr(part, name) for part in parts) for name in _AMOUNTS))


_AMOUNTS = tuple(field.name for field in fields(Kept))


def pieces(
    stored: Stored, window: Window, now_ns: int, step_ns: int | None, price: StoragePrice | None
) -> Iterator[tuple[int, Kept]]:
    """What was kept in a window up to now, cut at every multiple of `step_ns` (None: not cut): when each piece begins,
    and what it is.
    """
    end_ns = min(now_ns if stored.end_ns is None else stored.end_ns, now_ns, window.end_ns)
    at_ns = max(stored.begin_ns, window.begin_ns)
    while at_ns < end_ns:
        mark_ns = end_ns if step_ns is None else min(end_ns, at_ns - at_ns % step_ns + step_ns)
        yield at_ns, _kept(stored, at_ns, mark_ns, price)
        at_ns = mark_ns


def _kept(stored: Stored, at_ns: int, mark_ns: int, price: StoragePrice | None) -> Kept:
    gib_ns = stored.size_gib * (mark_ns - at_ns)
    micros = _until(stored, mark_ns, price) - _until(stored, at_ns, price)
    if stored.kind is ResourceKind.VOLUME:
        return Kept(volume_gib_ns=gib_ns, volume_micros=micros)
    return Kept(snapshot_gib_ns=gib_ns, snapshot_micros=micros)


def _until(stored: Stored, at_ns: int, price: StoragePrice | None) -> int:
    """What it had cost at a moment since it was made."""
    if price is None:
        return 0
    per_month = price.micros_per_month(stored.kind, stored.size_gib)
    return per_month * (at_ns - stored.begin_ns) // MONTH_NS
