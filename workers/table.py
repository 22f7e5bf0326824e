"""Tables of the operator's commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Plain digits, as counts and amounts are printed.
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lines of columns, numbers to the right, `-` for None.

    Nothing is cut or folded, however narrow the terminal: a date or a name can be copied, and a line can be read by
    another program. A line is a row, always: what callers named may hold what ends one, or moves a cursor.
    """
    cells = [["-" if cell is None else _plain(str(cell)) for cell in row] for row in rows]
    drawn = [
        _column([name, *(row[at] for row in cells)], numbers=_are_numbers(row[at] for row in cells))
        for at, name in enumerate(columns)
    ]
    return "\n".join("  ".join(line).rstrip() for line in zip(*drawn, strict=True))


def _plain(text: str) -> str:
    return "".join(one if one.isprintable() else "\ufffd" for one in text)


def _are_numbers(cells: Iterable[str]) -> bool:
    told = [cell for cell in cells if cell not in ("-", "")]
    return bool(told) and all(map(NUMBER.fullmatch, told))


def _column(cells: list[str], *, numbers: bool) -> list[str]:
    width = max(map(len, cells))
    return [cell.rjust(width) if numbers else cell.ljust(width) for cell in cells]
