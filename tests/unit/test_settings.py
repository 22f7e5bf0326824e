"""Settings: read once, typed, and the same again from the file that a stack writes."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsError

from app.errors import BadRequest
from infra.settings import (
    SETTINGS_FILE,
    Settings,
    as_json,
    complaint,
    inherited,
    load,
    runtime_dir,
)

# The longest name of a socket that a stack makes under its runtime directory.
LONGEST_SOCKET = "redis.sock"
UNIX_PATH_BYTES = 107


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PROMIGENCE_{name.upper()}", raising=False)
    monkeypatch.setattr("infra.settings.SECRETS_DIR", Path("/nonexistent"))


def test_the_defaults_are_the_embedded_stack(tmp_path: Path) -> None:
    settings = Settings(dir=tmp_path)

    assert settings.database == f"sqlite:///{tmp_path}/promigence.db"
    assert settings.broker_url == f"redis+socket://{settings.sockets}/redis.sock"
    assert settings.egress_allow == ()
    assert settings.machines == "real"


def test_the_environment_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMIGENCE_REDIS_URL", "redis://queue:6379/0")
    monkeypatch.setenv("PROMIGENCE_EGRESS_ALLOW", '["policy.internal:8000"]')
    monkeypatch.setenv("PROMIGENCE_FORKS_AT_ONCE", "3")

    settings = Settings(dir=tmp_path)

    assert settings.broker_url == "redis://queue:6379/0"
    assert settings.egress_allow == ("policy.internal:8000",)
    assert settings.forks_at_once == 3


def test_programs_side_by_side_are_names_or_paths_that_hold_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Settings(dir=tmp_path).qemu == ("qemu-system-x86_64",)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROMIGENCE_QEMU", '["./new/qemu", "qemu-system-x86_64"]')
    settings = Settings(dir=tmp_path)
    assert settings.qemu == (f"{tmp_path}/new/qemu", "qemu-system-x86_64")
    (tmp_path / SETTINGS_FILE).write_text(as_json(settings))
    monkeypatch.chdir("/")
    assert load(tmp_path).qemu == settings.qemu
    with pytest.raises(ValidationError, match="qemu"):
        Settings(dir=tmp_path, qemu=())


def test_what_a_stack_wrote_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / SETTINGS_FILE).write_text('{"machines": "fake"}')
    monkeypatch.setenv("PROMIGENCE_MACHINES", "real")

    assert load(tmp_path).machines == "fake"


def test_settings_written_down_are_read_as_the_same(tmp_path: Path) -> None:
    settings = Settings(
        dir=tmp_path,
        machines="fake",
        egress_allow=("a b:1", 'quote"d:2'),
        host_slots=7,
        key_secret=SecretStr("it's $ecret # here"),
        flower_password=SecretStr("pass word"),
    )
    (tmp_path / SETTINGS_FILE).write_text(as_json(settings))

    again = load(tmp_path)

    assert again == settings
    assert again.key_secret is not None
    assert again.key_secret.get_secret_value() == "it's $ecret # here"


def test_secrets_are_not_shown() -> None:
    shown = repr(Settings(key_secret=SecretStr("abcdef"), redis_url=SecretStr("redis://:pw@h/0")))

    assert "abcdef" not in shown
    assert "pw@h" not in shown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("machines", "paper"),
        ("api_port", 0),
        ("host_slots", 0),
        ("host_id", ""),
        ("host_id", "a:b"),
        ("host_id", "*"),
        ("execs_at_once", -1),
        ("bundles", "tape"),
        ("volume_rate_mib", 99),
        ("volume_rate_mib", 301),
        ("deployment", ""),
        ("metadata_url", "https://169.254.169.254"),
        ("metadata_url", "169.254.169.254"),
        ("placement", "random"),
        ("fleet_min", -1),
        ("fleet_max", 0),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: value})


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as found:
        Settings.model_validate({"volume_rate_mib": 50, "api_port": 0})
    assert complaint(found.value) == (
        "volume_rate_mib: Input should be greater than or equal to 100; "
        "api_port: Input should be greater than or equal to 1"
    )
    with pytest.raises(ValidationError) as no_part:
        Settings.model_validate({"parts": ["woker"]})
    assert complaint(no_part.value).startswith("parts.0: Input should be 'api'")
    assert "at least" not in complaint(no_part.value)
    with pytest.raises(ValidationError) as together:
        Settings(fleet="hosts")
    assert complaint(together.value) == "fleet needs aws_region: a group is in one region"
    monkeypatch.setenv("PROMIGENCE_QEMU", "qemu-system-x86_64")
    with pytest.raises(SettingsError) as no_list:
        load(tmp_path)
    assert complaint(no_list.value).startswith("qemu: a list is written as JSON")
    (tmp_path / SETTINGS_FILE).write_text("{'qemu': []}")
    with pytest.raises(BadRequest, match="is no JSON"):
        load(tmp_path)


def test_a_fleet_is_in_a_region_and_its_bounds_are_in_order() -> None:
    with pytest.raises(ValidationError, match="fleet needs aws_region"):
        Settings(fleet="hosts")
    with pytest.raises(ValidationError, match="fleet_min is above fleet_max"):
        Settings(fleet="hosts", aws_region="eu-west-1", fleet_min=3, fleet_max=2)
    assert Settings(fleet="hosts", aws_region="eu-west-1", fleet_min=2, fleet_max=2).fleet_max == 2


@pytest.mark.parametrize(
    "wrong", ["nonsense", "mysql://u:hunter2@db/p", "postgres://u:hunter2@db/p"]
)
def test_a_database_that_the_store_does_not_know_is_told_without_its_password(wrong: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(database_url=SecretStr(wrong))
    assert complaint(refused.value).startswith("database_url is postgresql+psycopg://")
    assert "hunter2" not in complaint(refused.value)


def test_who_is_trusted_is_an_address_or_a_network() -> None:
    proxies = ("10.20.0.0/16", "10.0.0.7", "fd00::/8")
    assert Settings(trusted_proxies=proxies).trusted_proxies == (
        "10.20.0.0/16",
        "10.0.0.7/32",
        "fd00::/8",
    )
    with pytest.raises(ValidationError) as refused:
        Settings(trusted_proxies=("balancer",))
    assert "trusted_proxies.0: 'balancer' does not appear to be" in complaint(refused.value)


def test_snapshots_on_ebs_are_in_a_region_and_of_a_deployment_that_has_a_name() -> None:
    """Two deployments with one name would take each other's snapshots for leaks: there is none by default."""
    with pytest.raises(ValidationError, match="aws_region"):
        Settings(bundles="ebs", deployment="ours")
    with pytest.raises(ValidationError, match="needs deployment"):
        Settings(bundles="ebs", aws_region="eu-west-1")
    assert Settings(bundles="ebs", aws_region="eu-west-1", deployment="ours").deployment == "ours"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().machines = "fake"


def test_directories_have_short_runtime_places_of_their_own(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    places = {runtime_dir(deep), runtime_dir(tmp_path), runtime_dir(tmp_path / "other")}

    assert len(places) == 3
    assert runtime_dir(deep) == runtime_dir(deep)
    assert max(len(str(place / LONGEST_SOCKET)) for place in places) <= UNIX_PATH_BYTES


def test_a_child_inherits_no_secret_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "half of it")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    monkeypatch.setenv("AWS_PROFILE", "ours")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/etc/ours")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.setenv("PATH", "/usr/bin")

    kept = inherited()

    assert kept["PATH"] == "/usr/bin"
    assert not {"HTTPS_PROXY", "PYTHONWARNINGS"} & kept.keys()
    assert {name: value for name, value in kept.items() if name.startswith("AWS_")} == {
        "AWS_PROFILE": "ours",
        "AWS_SHARED_CREDENTIALS_FILE": "/etc/ours",
    }


@pytest.mark.parametrize(
    ("of_user", "root"),
    [
        ("{tmp}", "{tmp}/promigence"),
        ("", "/tmp/promigence-1000"),
        ("/no/such/directory", "/tmp/promigence-1000"),
        ("{tmp}/" + "x" * 40, "/tmp/promigence-1000"),
    ],
)
def test_without_root_the_places_are_the_users_own(
    of_user: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TemporaryDirectory(dir="/tmp") as short:
        Path(short, "x" * 40).mkdir()
        monkeypatch.setattr("os.geteuid", lambda: 1000)
        monkeypatch.setenv("XDG_RUNTIME_DIR", of_user.format(tmp=short))

        place = runtime_dir(Path("/somewhere"))

        assert str(place.parent) == root.format(tmp=short)


def test_a_rate_card_is_a_word_or_a_file_whose_path_holds_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings(dir=tmp_path).rate_card is None
    assert Settings(dir=tmp_path, rate_card="c8i").rate_card == "c8i"
    settings = Settings(dir=tmp_path, rate_card="cards/ours.toml")
    assert settings.rate_card == str(tmp_path / "cards/ours.toml")
    monkeypatch.chdir("/")
    (tmp_path / SETTINGS_FILE).write_text(as_json(settings))
    assert load(tmp_path).rate_card == settings.rate_card


@pytest.mark.parametrize(("given", "token"), [(None, None), ("", None), ("t" * 32, "t" * 32)])
def test_an_empty_token_opens_no_metrics(
    given: str | None, token: str | None, tmp_path: Path
) -> None:
    secret = None if given is None else SecretStr(given)
    assert Settings(dir=tmp_path, metrics_token=secret).scrape_token == token
