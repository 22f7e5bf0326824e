"""The monitor's client against a scripted monitor on a socket pair."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.domain.machine import MonitorEvent
from infra.clock import HostClock
from infra.qemu.qmp import (
    EVENTS_KEPT,
    LINE_LIMIT_BYTES,
    MessageReader,
    Monitor,
    MonitorLoop,
    MonitorLostError,
    MonitorRefusedError,
    MonitorSilentError,
)


class Listening:
    """A loop, and what it was told."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.lost: list[str] = []
        self.loop = MonitorLoop(
            HostClock(),
            lambda _, event: self.heard.append(event.name),
            lambda monitor: self.lost.append(monitor.name),
        )


@pytest.fixture
def listening() -> Iterator[Listening]:
    made = Listening()
    yield made
    made.loop.close()


class Qemu:
    """The other end: says what it is told to say, and answers each command by its name."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.ours, self._own = socket.socketpair()
        self.ours.settimeout(10)
        self._answers = answers or {}
        self.commands: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Qemu:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self._thread.join(10)
        self._own.close()
        self.ours.close()

    def say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self._own.sendall(json.dumps(message).encode() + b"\r\n")

    def say_raw(self, data: bytes) -> None:
        self._own.sendall(data)

    def hang_up(self) -> None:
        self._own.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with self._own.makefile("rb") as lines:
            for line in lines:
                command = json.loads(line)
                self.commands.append(command)
                answer = self._answers.get(command["execute"], {"return": {}})
                if answer is not None:
                    self.say({**answer, "id": command["id"]})


def event(name: str, **data: object) -> dict[str, Any]:
    return {"event": name, "data": data, "timestamp": {"seconds": 1, "microseconds": 2}}


def test_messages_are_lines_however_they_arrive() -> None:
    reader = MessageReader()
    assert reader.feed(b'{"a": 1}\r\n{"b"') == [{"a": 1}]
    assert reader.feed(b": 2}") == []
    assert reader.feed(b"\n\n") == [{"b": 2}]


@pytest.mark.parametrize("line", [b"hello\n", b"[1]\n", b"\xff\xfe\n", b"1" * 9 + b"\n"])
def test_what_is_no_object_ends_the_conversation(line: bytes) -> None:
    with pytest.raises(MonitorLostError, match="no JSON"):
        MessageReader().feed(line)


def test_a_line_without_end_is_not_kept() -> None:
    reader = MessageReader()
    reader.feed(b"x" * LINE_LIMIT_BYTES)
    with pytest.raises(MonitorLostError, match="a line of more than"):
        reader.feed(b"x")


def test_a_greeting_is_waited_for_and_migration_events_are_asked_for(listening: Listening) -> None:
    with Qemu() as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        qemu.say({"QMP": {"version": {}, "capabilities": []}})
        monitor.greet(10)
        assert [command["execute"] for command in qemu.commands] == [
            "qmp_capabilities",
            "migrate-set-capabilities",
        ]
        listening.loop.detach(monitor)


def test_no_greeting_is_silence(listening: Listening) -> None:
    with Qemu() as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        with pytest.raises(MonitorSilentError, match="greeting: no answer within"):
            monitor.greet(0.01)
        listening.loop.detach(monitor)


def test_an_answer_is_its_command_s(listening: Listening) -> None:
    with Qemu({"query-status": {"return": {"status": "running"}}}) as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        qemu.say({"return": {"status": "of nobody"}, "id": 99}, {"return": 1}, event("STOP"))
        assert monitor.execute("query-status", 10) == {"status": "running"}
        assert [heard.name for heard in monitor.events] == ["STOP"]
        listening.loop.detach(monitor)


def test_a_refusal_has_the_hypervisor_s_words(listening: Listening) -> None:
    refusal = {"error": {"class": "GenericError", "desc": "State blocked"}}
    with Qemu({"migrate": refusal}) as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        with pytest.raises(MonitorRefusedError, match=r"migrate: .*State blocked"):
            monitor.execute("migrate", 10, uri="file:x")
        assert qemu.commands[0]["arguments"] == {"uri": "file:x"}
        listening.loop.detach(monitor)


def test_no_answer_in_time_is_silence_and_the_late_one_is_dropped(listening: Listening) -> None:
    with Qemu({"stop": None}) as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        with pytest.raises(MonitorSilentError, match="stop: no answer within"):
            monitor.execute("stop", 0.01)
        qemu.say({"return": {}, "id": 1})
        assert monitor.execute("cont", 10) == {}
        assert monitor._replies == {}
        listening.loop.detach(monitor)


def test_an_event_may_come_before_it_is_waited_for_or_after(listening: Listening) -> None:
    with Qemu() as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        qemu.say(event("MIGRATION", status="active"), event("MIGRATION", status="completed"))
        seen = monitor.expect(lambda heard: heard.data.get("status") == "completed", 10)
        assert seen.name == "MIGRATION"
        with pytest.raises(MonitorSilentError):
            monitor.expect(lambda heard: heard.name == "RESUME", 0.01)
        listening.loop.detach(monitor)


def test_events_are_bounded_and_the_last_ones_stay(listening: Listening) -> None:
    with Qemu() as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        qemu.say(*(event("RTC_CHANGE", offset=number) for number in range(EVENTS_KEPT + 5)))
        last = EVENTS_KEPT + 4
        monitor.expect(lambda heard: heard.data["offset"] == last, 10)
        assert len(monitor.events) == EVENTS_KEPT
        assert monitor.events[0].data["offset"] == 5
        listening.loop.detach(monitor)


def test_the_end_of_the_connection_wakes_who_waits_and_is_told_once(listening: Listening) -> None:
    with Qemu({"stop": None}) as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        waiting = Waiting(monitor)
        qemu.hang_up()
        assert isinstance(waiting.outcome(), MonitorLostError)
        assert monitor.finished.wait(10)
    assert listening.lost == ["m"]
    with pytest.raises(MonitorLostError):
        monitor.execute("cont", 10)


def test_nonsense_ends_one_conversation_and_no_other(listening: Listening) -> None:
    with Qemu() as odd, Qemu() as sound:
        lost = listening.loop.attach("odd", odd.ours)
        kept = listening.loop.attach("sound", sound.ours)
        odd.say_raw(b"\x00\x01\x02\n")
        assert lost.finished.wait(10)
        assert kept.execute("cont", 10) == {}
        assert listening.lost == ["odd"]
        listening.loop.detach(kept)


def test_a_detached_monitor_is_not_told_as_lost(listening: Listening) -> None:
    with Qemu() as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        listening.loop.detach(monitor)
        listening.loop.detach(monitor)
        assert monitor.finished.is_set()
        with pytest.raises(MonitorLostError):
            monitor.execute("cont", 10)
    assert listening.lost == []


def test_events_are_told_to_the_listener(listening: Listening) -> None:
    with Qemu() as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        qemu.say(event("SHUTDOWN", guest=True))
        qemu.hang_up()
        assert monitor.finished.wait(10)
    assert listening.heard == ["SHUTDOWN"]
    assert listening.lost == ["m"]


def test_an_event_may_be_noted_by_who_learnt_it(listening: Listening) -> None:
    with Qemu() as qemu:
        monitor = listening.loop.attach("m", qemu.ours)
        monitor.note(MonitorEvent("SHUTDOWN", {"guest": True}, 1))
        assert monitor.expect(lambda heard: heard.name == "SHUTDOWN", 0).boot_ns == 1
        listening.loop.detach(monitor)


class Waiting:
    """A command that another thread waits for."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._outcome: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def outcome(self) -> Exception | None:
        """What the wait ended with."""
        self._thread.join(10)
        return self._outcome

    def _run(self) -> None:
        try:
            self._monitor.execute("stop", 10)
        except MonitorLostError as error:
            self._outcome = error
