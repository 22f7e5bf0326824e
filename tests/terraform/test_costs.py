"""The page of costs is what its generator draws."""

from __future__ import annotations

from docs.costs import PAGE, page


def test_the_page_is_drawn_from_the_prices() -> None:
    drawn = page()
    assert PAGE.read_text() == drawn, "run `python -m docs.costs` and commit terraform/costs.md"
