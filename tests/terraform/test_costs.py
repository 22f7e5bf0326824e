"""What a deployment costs stands in the README as its generator draws it."""

from __future__ import annotations

import pytest

from docs.costs import PAGE, drawn_on


def test_it_is_drawn_from_the_prices() -> None:
    page = PAGE.read_text()
    assert page == drawn_on(page), "run `python -m docs.costs` and commit terraform/README.md"


def test_a_page_without_the_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="README"):
        drawn_on("# A page\n")
