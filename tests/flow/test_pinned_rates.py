"""What was quoted under one card stays priced by it, whatever card the deployment is restarted with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.machine import Shape
from app.domain.rates import Basis, Price, RateCard
from app.errors import BadRequest, FailureKind
from app.flow import quote, start
from tests.flow.stage import CARD, PROJECT, SHAPE, Stage, sim, spec

DEARER = RateCard("test-2", (Price(SHAPE, 3_600_000, 7_200_000),), Basis.ON_DEMAND)
NOTHING = RateCard("test-3", (Price(Shape(1, 64, 1), 1, 1),))


def _restart(stage: Stage, card: RateCard) -> None:
    """The deployment comes back with another card; what it knows otherwise is in its rows."""
    stage.ports = replace(stage.ports, rates=card)


def _rate(page: dict[str, object]) -> tuple[object, object, object]:
    quoted = page["quote"]
    assert isinstance(quoted, dict)
    rate = quoted["rate"]
    return rate["usd_per_fork_hour"], rate["basis"], rate["card_version"]


@pytest.mark.parametrize("card", [DEARER, NOTHING], ids=["dearer", "without a price for it"])
def test_a_quote_is_started_at_its_own_rate_under_a_later_card(
    suite: Stage, card: RateCard
) -> None:
    # Under the dearer card this cap would be refused as too small, under the other one as not to be priced.
    given = spec("30s", count=2, cap_usd=0.005)
    held = quote.quote(suite.ports, PROJECT, given)
    _restart(suite, card)

    answer = start.start(suite.ports, PROJECT, given, held.quote_id, None)

    assert answer["quote"] == held.as_dict()
    assert _rate(answer) == (0.036, "committed", "test-1")
    page = suite.run_until_final(str(answer["run_id"]))
    assert page["totals"]["passed"] == 2
    assert page["cost"]["rate_usd_per_fork_hour"] == 0.036
    assert 2 * 30 * 10 <= page["cost"]["total_usd"] * 1_000_000 <= 2 * 33 * 10


def test_what_is_quoted_anew_has_the_new_rate(suite: Stage) -> None:
    given = spec("30s", count=2)
    quote.quote(suite.ports, PROJECT, given)
    _restart(suite, DEARER)

    answer = start.start(suite.ports, PROJECT, given, None, None)
    assert _rate(answer) == (7.2, "on_demand", "test-2")
    page = suite.run_until_final(str(answer["run_id"]))
    assert page["cost"]["rate_usd_per_fork_hour"] == 7.2
    assert page["cost"]["total_usd"] >= 2 * 30 * 0.002
    _restart(suite, NOTHING)
    with pytest.raises(BadRequest, match="no price"):
        quote.quote(suite.ports, PROJECT, given)


def test_a_run_is_charged_at_the_card_of_its_start_to_its_end(suite: Stage) -> None:
    """Its replacements and what its pool funds as well: to the micro-dollar what it costs without a restart."""
    costs = []
    for card in (CARD, DEARER):
        _restart(suite, CARD)
        # The first machine dies on its way, in its second half the cap binds.
        suite.world.fault("wake", FailureKind.BARRIER_FAILED)
        run_id = suite.start(spec(count=3, exec=sim("500s", timeout_s=900), cap_usd=0.009))
        _restart(suite, card)
        page = suite.run_until_final(run_id)
        assert page["totals"]["capped"] + page["totals"]["passed"] == 3
        assert [len(page["environment_failures"]), page["environment_failures"][0]["replaced"]] == [
            1,
            True,
        ]
        costs.append(page["cost"])
    assert costs[0] == costs[1]
    assert costs[0]["rate_usd_per_fork_hour"] == 0.036
    assert costs[0]["total_usd"] > 0.99 * 0.009
