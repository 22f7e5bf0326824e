from __future__ import annotations

import httpx2
import pytest

import promigence
from promigence import ConfigError, Promigence
from tests.sdk.wire import Wire, ok


def test_settings_come_from_the_environment(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMIGENCE_API_KEY", "env-key")
    monkeypatch.setenv("PROMIGENCE_BASE_URL", "http://env.test/behind/a/path/")
    wire.will(ok({"hosts": [], "next_cursor": None}))
    with Promigence(transport=httpx2.MockTransport(wire)) as client:
        client.hosts.list()
    (asked,) = wire.asked
    assert str(asked.url).startswith("http://env.test/behind/a/path/v1/hosts?")
    assert asked.headers["authorization"] == "Bearer env-key"
    assert asked.headers["user-agent"] == f"promigence-python/{promigence.__version__}"


def test_arguments_win_over_the_environment(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMIGENCE_API_KEY", "env-key")
    monkeypatch.setenv("PROMIGENCE_BASE_URL", "http://env.test")
    wire.will(ok({"hosts": [], "next_cursor": None}))
    with Promigence("k", "http://arg.test", transport=httpx2.MockTransport(wire)) as client:
        client.hosts.list()
    assert wire.asked[0].url.host == "arg.test"
    assert wire.asked[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("missing", "code"),
    [("PROMIGENCE_API_KEY", "missing_api_key"), ("PROMIGENCE_BASE_URL", "missing_base_url")],
)
def test_a_missing_setting_is_named_with_the_way_to_get_it(
    missing: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMIGENCE_API_KEY", "env-key")
    monkeypatch.setenv("PROMIGENCE_BASE_URL", "http://env.test")
    monkeypatch.setenv(missing, " ")
    with pytest.raises(ConfigError) as caught:
        Promigence()
    assert caught.value.code == code
    assert missing in caught.value.message
    assert "make up" in caught.value.message
    assert ".promigence/env" in caught.value.message


@pytest.mark.parametrize(
    "address", ["promigence.internal", "ftp://x", "http://", "http://[::1", "file:///etc"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Promigence("k", address)
    assert caught.value.code == "bad_base_url"


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Promigence(key, "http://env.test")
    assert caught.value.code == "bad_api_key"
    assert key not in str(caught.value)


def test_a_client_does_not_show_its_key() -> None:
    with Promigence("secret-key", "http://env.test") as client:
        assert repr(client) == "Promigence(base_url='http://env.test')"


def test_a_call_needs_time() -> None:
    with pytest.raises(ConfigError):
        Promigence("k", "http://env.test", timeout=0)
