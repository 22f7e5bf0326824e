"""Tables of the operator's commands."""

from __future__ import annotations

from workers.table import table


def test_numbers_stand_to_the_right_and_texts_to_the_left() -> None:
    rows = [("lab", 1.5, None, "2026-11-30"), ("a-long-name", 10.25, 3, None), ("total", "", 3, "")]
    assert table(("project", "usd", "n", "day"), rows).splitlines() == [
        "project        usd  n  day",
        "lab            1.5  -  2026-11-30",
        "a-long-name  10.25  3  -",
        "total               3",
    ]


def test_a_column_of_nothing_is_no_column_of_numbers() -> None:
    assert table(("n", "host"), [(1, None)]).splitlines() == ["n  host", "1  -"]


def test_without_rows_there_are_the_names_of_the_columns() -> None:
    assert table(("project", "usd"), []) == "project  usd"


def test_what_callers_named_forges_no_row_and_moves_no_cursor() -> None:
    rows = [("run\n2026-12-01  forged\r\x1b[2J\x9b\u202e\u2028", "done")]
    assert table(("target", "outcome"), rows).split("\n") == [
        "target                          outcome",
        "run\ufffd2026-12-01  forged\ufffd\ufffd[2J\ufffd\ufffd\ufffd  done",
    ]
