"""`promigence-server rates` as an operator types it."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.errors import BadRequest, NotFound, PromigenceError
from infra.rates import SHIPPED, read_card
from workers.server import app


def _run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["rates", *map(str, words)])


def _derived(*words: str) -> str:
    done = _run("derive", *words)
    assert done.exit_code == 0, done.output
    return done.stdout


def _refused(*words: str) -> PromigenceError:
    """What the program would end with as one line and exit code 1."""
    error = _run("derive", *words).exception
    assert isinstance(error, PromigenceError)
    return error


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_card_is_derived_again_to_the_byte(name: str) -> None:
    shipped = resources.files("infra.rates") / "cards" / f"{name}.toml"
    assert _derived("--instance", SHIPPED[name]) == shipped.read_text()


def test_every_card_that_ships_can_be_named() -> None:
    folder = resources.files("infra.rates") / "cards"
    assert {file.name for file in folder.iterdir()} == {f"{name}.toml" for name in SHIPPED}


def test_a_derived_card_passes_the_check_and_says_what_was_given(tmp_path: Path) -> None:
    card = tmp_path / "card.toml"
    facts = (
        "--instance",
        "x9.large",
        "--usd-per-hour",
        "1.5",
        "--vcpus",
        "8",
        "--memory-gib",
        "32",
    )
    bought = ("--vcpus-committed", "16", "--committed-from", "2028-02-29")
    card.write_text(
        _derived(*facts, *bought, "--plan-usd-per-hour", "0.9", "--priced-at", "2028-01-02")
    )

    done = _run("check", card)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{card}: good; 2028-01-us-east-1-x9.large-")
    read = json.loads(_run("show", card, "--json").stdout)
    assert (read["instance"], read["priced_at"]) == ("x9.large", "2028-01-02")
    # Two hosts under the plan; the leap day's year ends on the first of March.
    assert read["commitment"] == {
        "vcpus": 16,
        "usd_per_hour": "1.8",
        "begins": "2028-02-29",
        "ends": "2029-03-01",
    }
    assert read["prices"][0] == {
        "vcpus": 1,
        "memory_mib": 512,
        "disk_gib": 64,
        "committed_usd": "0.1125",
        "on_demand_usd": "0.1875",
    }


def test_of_a_listed_instance_only_what_differs_is_given(tmp_path: Path) -> None:
    card = tmp_path / "card.toml"
    card.write_text(_derived("--instance", "m8i.4xlarge", "--usd-per-hour", "0.8"))

    facts = read_card(card).derivation
    assert facts is not None
    assert (facts.host.vcpus, facts.host.memory_mib) == (16, 64 * 1024)
    assert facts.host.micros_per_hour == 800_000
    assert facts.host.source.startswith("as given")


def test_storage_has_list_prices_in_one_region_only(tmp_path: Path) -> None:
    card = tmp_path / "card.toml"

    def storage(*words: str) -> object:
        card.write_text(_derived("--instance", "m8i.4xlarge", *words))
        return json.loads(_run("show", card, "--json").stdout)["storage"]

    volume, snapshot = "--volume-usd-per-gib-month", "--snapshot-usd-per-gib-month"
    given = {"volume_usd_per_gib_month": "0.09", "snapshot_usd_per_gib_month": "0.05"}
    assert storage() == given | {"volume_usd_per_gib_month": "0.08"}
    assert storage(volume, "0.09") == given
    assert storage("--region", "eu-central-1") is None
    assert storage("--region", "eu-central-1", volume, "0.09", snapshot, "0.05") == given
    assert "0.09 USD a GiB-month of volumes, 0.05 of snapshots" in _run("show", card).stdout
    assert "as given" in card.read_text()


@pytest.mark.parametrize("amount", ["0", "-1", "nan", "inf", "1e400", "abc", "1_0", "\uff11", ""])
@pytest.mark.parametrize("option", ["--usd-per-hour", "--plan-usd-per-hour"])
def test_an_amount_that_is_none_is_named_by_its_option(option: str, amount: str) -> None:
    error = _refused("--instance", "m8i.4xlarge", option, amount)
    assert isinstance(error, BadRequest)
    assert error.details == {"field": option}


def test_what_follows_from_nothing_is_refused() -> None:
    assert isinstance(_refused("--instance", "m9i.large"), NotFound)
    assert "plan.usd_per_hour: is above" in str(
        _refused("--instance", "m8i.4xlarge", "--plan-usd-per-hour", "0.9")
    )
    assert "fits on m8i.4xlarge" in str(_refused("--instance", "m8i.4xlarge", "--memory-gib", "4"))
    assert "commitment.ends" in str(
        _refused(
            *("--instance", "m8i.4xlarge", "--vcpus-committed", "1"),
            *("--committed-until", "2026-07-01"),
        )
    )


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--instance", "m8i.4xlarge", "--vcpus", "0"),
        ("--instance", "m8i.4xlarge", "--plan-percent", "101"),
        ("--instance", "m8i.4xlarge", "--plan-percent", "73.5"),
        ("--instance", "m8i.4xlarge", "--plan-percent", "73", "--plan-usd-per-hour", "0.6"),
        ("--instance", "m8i.4xlarge", "--committed-from", "2026-07-01"),
        ("--instance", "m8i.4xlarge", "--priced-at", "July"),
        ("--instance", "m8i.4xlarge", "--basis", "barter"),
        (
            *("--instance", "m8i.4xlarge", "--region", "eu-central-1"),
            *("--volume-usd-per-gib-month", "0.09"),
        ),
    ],
    ids=range(9),
)
def test_options_that_do_not_go_together_are_bad_usage(words: tuple[str, ...]) -> None:
    done = _run("derive", *words)
    assert (done.exit_code, done.stdout) == (2, "")


def test_the_check_tells_all_that_is_wrong_a_line_each(tmp_path: Path) -> None:
    card = tmp_path / "card.toml"
    card.write_text('version = ""\ncurrency = "EUR"\n')

    done = _run("check", card)
    assert (done.exit_code, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert [line.removeprefix(f"{card}: ").partition(":")[0] for line in lines] == [
        *("version", "currency", "region", "priced_at", "basis", "price")
    ]


def test_the_card_in_force_is_the_one_that_the_stack_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMIGENCE_RATE_CARD", raising=False)
    default = json.loads(_run("show", "--dir", tmp_path, "--json").stdout)
    monkeypatch.setenv("PROMIGENCE_RATE_CARD", "r8i")
    shown = json.loads(_run("show", "--dir", tmp_path, "--json").stdout)

    assert (default["instance"], shown["instance"]) == ("m8i.4xlarge", "r8i.4xlarge")
    assert default["commitment"] is None
    assert json.loads(_run("show", "c8i", "--json").stdout)["instance"] == "c8i.4xlarge"


def test_a_table_shows_shapes_prices_and_what_was_bought(tmp_path: Path) -> None:
    card = tmp_path / "card.toml"
    card.write_text(_derived("--instance", "m8i.4xlarge", "--vcpus-committed", "64"))

    shown = _run("show", card).stdout
    assert "0.038631" in shown
    assert "commitment: 64 vCPUs for 2.472364 USD an hour, 2026-07-01 to 2027-07-01" in shown
    assert "no commitment" in _run("show", "--dir", tmp_path).stdout
