"""What was noted a moment ago, of any number of callers."""

from __future__ import annotations

from app.api.lately import Lately


def test_once_within_its_time_for_each() -> None:
    lately = Lately(1.0)
    asked = (("a", 0.0), ("b", 0.5), ("a", 0.9), ("a", 1.0), ("b", 1.4))
    assert [lately.is_new(what, at_s) for what, at_s in asked] == [True, True, False, True, False]


def test_it_forgets_before_it_grows_without_end() -> None:
    lately = Lately(60.0)
    assert all(lately.is_new(number, 0.0) for number in range(10_000))
    assert not lately.is_new(0, 1.0)
    assert lately.is_new("one more", 1.0)
    assert lately.is_new(0, 1.0), "what was remembered was given up"
