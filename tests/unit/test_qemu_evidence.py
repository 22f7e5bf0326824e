"""How an end is read from what keeper and monitor left."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.machine import Death, DeathCause, MonitorEvent
from app.errors import BadRequest
from infra.clock import HostClock
from infra.qemu import evidence
from infra.qemu.home import Home, home_of

ASKED = "cause=asked exit_code=-1 signal=9 ended_boot_ns=77 late_ns=0\n"
SHUTDOWN = MonitorEvent("SHUTDOWN", {"guest": True, "reason": "guest-shutdown"}, 1)
PANIC = MonitorEvent("GUEST_PANICKED", {"action": "pause"}, 1)
STOP = MonitorEvent("STOP", {}, 1)
QUIT = MonitorEvent("SHUTDOWN", {"guest": False, "reason": "host-signal"}, 1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def cause(home: Home, *events: MonitorEvent) -> DeathCause | None:
    death = evidence.death(home, events, HostClock())
    return death.cause if death else None


@pytest.mark.parametrize(
    ("record", "death"),
    [
        (ASKED, Death(DeathCause.ASKED, None, 9, 77)),
        (
            "cause=deadline exit_code=-1 signal=9 ended_boot_ns=77 late_ns=5\n",
            Death(DeathCause.DEADLINE, None, 9, 77, late_ns=5),
        ),
        (
            "cause=exit exit_code=0 signal=-1 ended_boot_ns=77 late_ns=0\n",
            Death(DeathCause.EXIT, 0, None, 77),
        ),
    ],
    ids=["asked", "deadline", "exit"],
)
def test_a_keeper_s_record_is_the_death(home: Home, record: str, death: Death) -> None:
    home.exit.write_text(record)
    assert evidence.death(home, (), HostClock()) == death


def test_our_kill_of_a_guest_that_ended_itself_is_the_guest_s_doing(home: Home) -> None:
    home.exit.write_text(ASKED)
    assert cause(home, STOP, SHUTDOWN) is DeathCause.SHUTDOWN
    assert cause(home, PANIC, STOP) is DeathCause.PANICKED
    assert cause(home, STOP, QUIT) is DeathCause.ASKED


def test_a_lease_that_ended_is_the_lease_s_doing_whatever_the_guest_did(home: Home) -> None:
    home.exit.write_text(ASKED.replace("asked", "deadline"))
    assert cause(home, SHUTDOWN) is DeathCause.DEADLINE


def test_where_nothing_was_started_nothing_died(home: Home) -> None:
    assert evidence.death(home, (), HostClock()) is None


def test_an_end_without_witness_is_recorded_once(home: Home) -> None:
    """Neither keeper nor machine holds its lock, and no record was written: the keeper was lost."""
    home.born.write_text("keeper_pid=4000001 pid=4000002 started_boot_ns=5\n")
    death = evidence.death(home, (), HostClock())
    assert death is not None
    assert (death.cause, death.signal, death.exit_code) == (DeathCause.KEEPER_LOST, None, None)
    assert evidence.death(home, (), HostClock()) == death


@pytest.mark.parametrize(
    ("event", "is_end"), [(SHUTDOWN, True), (PANIC, True), (STOP, False), (QUIT, False)]
)
def test_only_the_guest_s_own_end_ends_a_machine(event: MonitorEvent, is_end: bool) -> None:
    assert evidence.is_end(event) is is_end


def test_events_are_kept_as_they_were(home: Home) -> None:
    assert evidence.load_events(home) == ()
    evidence.save_events(home, (STOP, SHUTDOWN))
    assert evidence.load_events(home) == (STOP, SHUTDOWN)


def test_events_of_a_forgotten_machine_are_dropped(tmp_path: Path) -> None:
    evidence.save_events(Home(tmp_path / "gone"), (STOP,))
    assert not (tmp_path / "gone").exists()


def test_a_console_cannot_control_the_terminal_of_its_reader(home: Home) -> None:
    raw = b"\x1b[31mred\x1b[0m\r\n\x07\x08bell\x9b2J \xc3\xa4\xff\tend\x00\n"
    (home.directory / "console").write_bytes(raw)
    text = evidence.console_tail(home)
    assert text == "red\nbell\ufffd2J \u00e4\ufffd\tend\n"


def test_a_console_s_tail_goes_back_into_the_file_before(home: Home) -> None:
    (home.directory / "console.old").write_bytes(b"x" * 9000)
    (home.directory / "console").write_bytes(b"y" * 96)
    assert evidence.console_tail(home) == "x" * 4000 + "y" * 96


def test_a_missing_console_is_empty(home: Home) -> None:
    assert evidence.console_tail(home) == ""


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/x", ".hidden", "a" * 65, "a\n"])
def test_a_machine_s_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest):
        home_of(tmp_path, name)
