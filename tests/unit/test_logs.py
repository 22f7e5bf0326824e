"""Logs: one JSON object a line whatever a guest says, and no secret in any, wherever it stands."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from infra import logs
from infra.logs import BLANK, WithoutSecrets
from infra.settings import Settings

SECRET = "s3cret/Va.lue+1"
KEY = "pmg_" + "0a" * 32
HOSTILE = 'a\nb\r\n{"event": "forged"}\x1b[2J\x00\x7f\u2028\u202e\x85'


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a process with this secret in its settings writes."""
    out = io.StringIO()
    root = logging.getLogger()
    before = (root.handlers[:], root.level, sys.excepthook, threading.excepthook)
    unraisable = sys.unraisablehook
    monkeypatch.setattr(sys, "stderr", out)
    config = structlog.get_config()
    logs.configure("info", [SECRET, "x"])
    yield out
    structlog.configure(**config)
    logging.captureWarnings(capture=False)
    logging.getLogger("uvicorn.error").filters.clear()
    root.handlers[:], root.level = before[0], before[1]
    sys.excepthook, threading.excepthook = before[2], before[3]
    sys.unraisablehook = unraisable


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def shown(**event: Any) -> dict[str, Any]:
    return dict(WithoutSecrets([SECRET])(None, "info", event))


def test_secrets_are_blanked_by_name_whoever_passes_them() -> None:
    assert shown(event="started", api_key="k", Flower_Password="x", host_id="h") == {
        "event": "started",
        "api_key": BLANK,
        "Flower_Password": BLANK,
        "host_id": "h",
    }


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"connecting with {SECRET} failed",
        KEY,
        f"Authorization: Bearer {KEY}",
        "authorization: bearer abcdefgh",
        "Basic dXNlcjpwYXNzd29yZA==",
        "postgresql+psycopg://user:hunter22@db.internal:5432/promigence",
        "redis://:hunter22@redis.internal:6379/0",
        "rediss://user:hun/ter:22@redis.internal",
        "AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
        "{'password': 'hunter22'}",
        '{"token": "hunter22"}',
        "https://bucket/x?X-Amz-Signature=hunter22&X-Amz-Date=1",
        "PGPASSWORD=hunter22 psql",
        "[SQL: ALTER ROLE promigence_host_a PASSWORD 'hunter22']",
        "{'X-Amz-Security-Token': b'hunter22'}",
        json.dumps({"body": json.dumps({"body": json.dumps({"password": "hunter22"})})}),
        "<SessionToken>hunter22</SessionToken>",
    ],
)
@pytest.mark.parametrize("place", ["event", "field", "list", "dict", "key", "object"])
def test_secrets_are_blanked_by_value_and_by_look_wherever_they_stand(
    text: str, place: str
) -> None:
    class Told:
        def __repr__(self) -> str:
            return f"<Told {text}>"

    places: dict[str, Any] = {
        "event": {"event": text},
        "field": {"why": text},
        "list": {"why": ["a", (text,)]},
        "dict": {"why": {"a": {"b": text}}},
        "key": {"why": {text: 1}},
        "object": {"why": Told()},
    }
    said = json.dumps(shown(**places[place]))
    for secret in (SECRET, KEY, "hunter22", "ter:22", "dXNlcjpwYXNzd29yZA", "AKIAIOSF", "wJalrX"):
        assert secret not in said
    assert "abcdefgh" not in said
    assert BLANK in said


@pytest.mark.parametrize(
    "text",
    [
        "a fork of attempt_0a1b2c is lost",
        "http://127.0.0.1:8000/v1/runs",
        "postgresql+psycopg://user@db.internal/promigence",
        "basic rules",
        "no token bucket",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ],
)
def test_what_is_no_secret_is_told(text: str) -> None:
    assert shown(event=text) == {"event": text}


def test_plain_values_stay_what_they_are() -> None:
    told = {"event": "e", "a": 1, "b": 1.5, "c": None, "d": True, "e": [1, {"f": 2}]}
    assert shown(**told) == told


@given(st.text(max_size=200) | st.just(HOSTILE))
def test_what_a_guest_says_is_one_line_and_moves_no_cursor(text: str) -> None:
    rendered = structlog.processors.JSONRenderer()(None, "info", shown(event=text, guest=text))
    assert isinstance(rendered, str)
    assert rendered.isascii()
    assert rendered.isprintable()
    assert set(json.loads(rendered)) == {"event", "guest"}


def test_a_long_text_is_cut_in_its_middle() -> None:
    told = shown(event="a" * 50_000 + "end")["event"]
    assert len(told) < 9000
    assert told.endswith("end")


@pytest.mark.parametrize(
    "piece",
    ["a", "token", "token=", "://", "://a:", "://a:b", "bearer ", "pmg_", "secret-", "\0", "AKIA"],
)
def test_no_text_keeps_a_log_busy(piece: str) -> None:
    """A pattern that looks back and forth takes minutes for these."""
    assert len(shown(event=piece * (200_000 // len(piece)))["event"]) < 9000


def test_a_trace_has_no_secret_of_its_message_nor_of_its_variables(written: io.StringIO) -> None:
    local = "l0cal-variable"
    try:
        raise ValueError(f"{SECRET} and {KEY} {HOSTILE}" + local[:0])
    except ValueError:
        logging.getLogger("a.library").exception("it failed with %s", SECRET)
        structlog.get_logger("ours").exception("it_failed", why=SECRET)
    first, second = lines(written)
    assert "ValueError" in first["exception"]
    assert "ValueError" in second["exception"]
    for secret in (SECRET, KEY, local):
        assert secret not in written.getvalue()
    assert (first["logger"], second["logger"]) == ("a.library", "ours")
    assert (first["level"], second["level"]) == ("error", "error")


def test_what_nobody_caught_is_a_record_too(written: io.StringIO) -> None:
    def fail() -> None:
        raise RuntimeError(f"broken with {SECRET}")

    thread = threading.Thread(target=fail, name="worker-7")
    thread.start()
    thread.join()
    try:
        fail()
    except RuntimeError as error:
        sys.excepthook(RuntimeError, error, error.__traceback__)
    in_thread, uncaught = lines(written)
    assert in_thread["event"] == "uncaught in thread worker-7"
    assert uncaught["event"] == "uncaught"
    assert SECRET not in written.getvalue()


def test_strangers_do_not_flood_the_log(written: io.StringIO) -> None:
    server = logging.getLogger("uvicorn.error")
    for moment in (10.0, 10.1, 10.9, 11.1):
        record = server.makeRecord(server.name, logging.WARNING, "f", 1, "Invalid", (), None)
        record.created = moment
        server.handle(record)
    for _ in range(2):
        server.error("broken")
    assert [line["event"] for line in lines(written)] == ["Invalid", "Invalid", "broken", "broken"]


def test_the_secrets_of_the_settings_are_known_in_every_spelling() -> None:
    settings = Settings(
        database_url=SecretStr("postgresql+psycopg://u:p%2Fss%20word@db/x"),
        redis_url=SecretStr("redis://:red1spass@r:6379"),
        key_secret=SecretStr("thekeysecret"),
        metrics_token=SecretStr(""),
    )
    assert settings.secret_values() >= {
        "postgresql+psycopg://u:p%2Fss%20word@db/x",
        "p%2Fss%20word",
        "p/ss word",
        "red1spass",
        "thekeysecret",
    }
    assert "" not in settings.secret_values()


def test_a_record_that_is_no_text_is_told_of_without_what_was_in_it(written: io.StringIO) -> None:
    class Untold:
        def __repr__(self) -> str:
            raise ValueError(SECRET)

    # pytest's own handlers break off a test for such a record.
    del logging.getLogger().handlers[1:]
    logging.getLogger("library").warning("%d of them", f"{SECRET}\nforged")
    structlog.get_logger("ours").warning("event", about=Untold())
    said = lines(written)
    assert [line["event"].split(":")[0] for line in said] == [
        "a record of library is no text",
        "a record of ours is no text",
    ]
    assert SECRET not in written.getvalue()


def test_what_a_finalizer_ends_by_is_a_line_without_secrets(written: io.StringIO) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError(SECRET)

    Broken()
    (line,) = lines(written)
    assert line["level"] == "critical"
    assert f"ValueError: {BLANK}" in line["exception"]
    assert SECRET not in written.getvalue()
