"""Many rows changed at once, each by a number of its own, in one statement: one for each takes ten times as long."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    String,
    bindparam,
    column,
    func,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY


def add_each(at: Connection, to: Column[int], parts: Mapping[str, int]) -> None:
    """Add to a column, by the keys of its table; the caller has locked these rows."""
    table = to.table
    (key,) = table.primary_key.columns
    if at.dialect.name == "sqlite":
        one = update(table).where(key == bindparam("at")).values({to: to + bindparam("part")})
        at.execute(one, [{"at": at_key, "part": part} for at_key, part in parts.items()])
        return
    given = func.unnest(
        bindparam("keys", type_=ARRAY(String())), bindparam("parts", type_=ARRAY(BigInteger()))
    )
    each = given.table_valued(column("key", String()), column("part", BigInteger())).render_derived(
        "each"
    )
    every = update(table).where(key == each.c.key).values({to: to + each.c.part})
    at.execute(every, {"keys": list(parts), "parts": list(parts.values())})
