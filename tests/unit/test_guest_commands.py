"""How a start is asked of a guest, and what a worker remembers of its commands."""

from __future__ import annotations

import threading

import pytest

from app.domain.machine import Command
from app.errors import BadRequest
from infra.guest.commands import Journal, request
from infra.guest.wire import Ended


def ended(exec_id: str) -> Ended:
    return Ended(exec_id, 0, None, False, 1, False, 0, 0, b"", b"")


def test_a_request_is_nul_ended_strings_in_the_guests_order() -> None:
    command = Command(("/bin/sh", "-c", "a b"), 7, "/w", (("K", "v=w"), ("E", "")), "eve", 9)
    assert request("x1", command).split(b"\0") == [
        b"x1", b"7", b"9", b"/w", b"eve", b"3", b"/bin/sh", b"-c", b"a b", b"2", b"K=v=w", b"E=", b"",
    ]  # fmt: skip


def test_a_grades_request_begins_with_what_an_older_guest_refuses() -> None:
    """An empty id, then that of the command which it grades."""
    plain = request("grade_1", Command(("a",), 1))
    graded = request("grade_1", Command(("a",), 1, grades="task_1"))
    assert graded == b"\0task_1\0" + plain


def test_limits_are_kept_within_what_the_guest_takes() -> None:
    fields = request("x", Command(("a",), 2**80, output_limit_bytes=2**40)).split(b"\0")
    assert fields[1:3] == [b"%d" % 2**62, b"%d" % (64 << 20)]
    fields = request("x", Command(("a",), -5, output_limit_bytes=-1)).split(b"\0")
    assert fields[1:3] == [b"0", b"2"]


@pytest.mark.parametrize(
    ("exec_id", "command", "code"),
    [
        ("", Command(("a",), 1), "bad_exec_id"),
        ("a/b", Command(("a",), 1), "bad_exec_id"),
        (".hidden", Command(("a",), 1), "bad_exec_id"),
        ("x" * 65, Command(("a",), 1), "bad_exec_id"),
        ("x", Command((), 1), "bad_command"),
        ("x", Command(("",), 1), "bad_command"),
        ("x", Command(("a\0b",), 1), "bad_command"),
        ("x", Command(("a",), 1, cwd="/\0"), "bad_command"),
        ("x", Command(("a",) * 4097, 1), "bad_command"),
        ("x", Command(("a" * (192 * 1024),), 1), "command_too_long"),
    ],
)
def test_what_no_guest_could_run_is_refused_here(exec_id: str, command: Command, code: str) -> None:
    with pytest.raises(BadRequest) as refused:
        request(exec_id, command)
    assert refused.value.code == code


def test_only_an_end_that_is_watched_for_is_news_and_only_once() -> None:
    journal = Journal()
    assert not journal.ended(ended("x"))
    journal.watch("x")
    assert journal.is_watched("x")
    assert journal.ended(ended("x"))
    assert not journal.ended(ended("x"))
    assert journal.wait("x", 0) == ended("x")
    journal.watch("x")
    assert not journal.is_watched("x")


def test_a_guest_that_floods_with_ends_fills_nothing() -> None:
    journal = Journal()
    for number in range(1000):
        journal.ended(ended(f"flood{number}"))
    assert journal.wait("flood999", 0) is None
    for number in range(100):
        journal.watch(f"x{number}")
        journal.ended(ended(f"x{number}"))
    assert journal.wait("x99", 0) is not None
    assert journal.wait("x0", 0) is None


@pytest.mark.parametrize("news", ["end", "close"])
def test_whoever_waits_hears_of_the_end_or_of_the_loss(news: str) -> None:
    journal = Journal()
    journal.watch("x")
    heard: list[Ended | None] = []
    waiting = threading.Thread(target=lambda: heard.append(journal.wait("x", 30.0)))
    waiting.start()
    if news == "end":
        journal.ended(ended("x"))
    else:
        journal.close()
    waiting.join(10.0)
    assert heard == [ended("x") if news == "end" else None]
