"""Tables as a terminal shows them."""

from __future__ import annotations

import io

from rich.console import Console

from promigence.cli.session import moment, table


def drawn(width: int, *columns: str, rows: list[tuple[object, ...]], prose: str = "") -> list[str]:
    """The lines that a terminal of this width is sent, as `promigence` sends them."""
    out = io.StringIO()
    Console(file=out, width=width, soft_wrap=True).print(table(*columns, rows=rows, prose=prose))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_numbers_stand_to_the_right_and_texts_to_the_left() -> None:
    rows: list[tuple[object, ...]] = [("lab", "+1.5", None), ("a-long-name", "$10.25", "x")]
    assert drawn(80, "project", "usd", "key", rows=rows) == [
        "project         usd  key",
        "lab            +1.5  -",
        "a-long-name  $10.25  x",
    ]


def test_a_column_of_nothing_is_no_column_of_numbers() -> None:
    assert drawn(80, "n", "host", rows=[(1, None)]) == ["n  host", "1  -"]


def test_no_id_is_folded_however_narrow_the_terminal() -> None:
    rows: list[tuple[object, ...]] = [("fork_0123456789abcdef", "2026-11-30", "")]
    wide, narrow = (drawn(width, "fork", "day", "late s", rows=rows) for width in (80, 10))
    assert (
        wide
        == narrow
        == ["fork                   day         late s", "fork_0123456789abcdef  2026-11-30"]
    )


def test_only_prose_is_folded() -> None:
    rows: list[tuple[object, ...]] = [
        ("fork_0123456789abcdef", "its process was killed from outside")
    ]
    assert drawn(24, "fork", "why", rows=rows, prose="why") == [
        "fork                   why",
        "fork_0123456789abcdef  its process was",
        "                       killed from",
        "                       outside",
    ]


def test_an_instant_is_told_to_the_second() -> None:
    assert moment("2026-11-30T17:20:04.123Z") == "2026-11-30T17:20:04Z"
