"""The picture of a run that is followed, and letting go of one."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest
from rich.console import Console

from promigence.cli.follow import following, picture, share_cells
from promigence.types import Run
from tests.sdk import shapes

OUTCOMES = (
    "passed",
    "failed",
    "timed_out",
    "released",
    "env_failed",
    "capped",
    "cancelled",
    "pending",
)


def drawn(run: Run, seconds: float = 0.0) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=200).print(picture(run, seconds))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    "counts",
    [
        {"passed": 20},
        {"pending": 20},
        {"passed": 1, "pending": 1999},
        {"passed": 1990, "failed": 4, "timed_out": 3, "env_failed": 2, "capped": 1},
        dict.fromkeys(OUTCOMES, 1),
        dict.fromkeys(OUTCOMES, 999),
        {"passed": 3, "failed": 3, "pending": 1},
    ],
)
def test_the_bar_is_full_and_shows_whatever_occurred(counts: dict[str, int]) -> None:
    shares = share_cells(shapes.totals(**counts), 40)
    assert sum(shares.values()) == 40
    for name in OUTCOMES:
        assert (shares[name] > 0) == (counts.get(name, 0) > 0)


def test_the_picture_has_the_money_and_what_waits() -> None:
    run = shapes.waiting_run(12, 8, "12 forks wait for one of 8 slots to become free")
    head, bar, money, waiting = drawn(run, seconds=62.4)
    assert head == "r-1  task-suite@1  1:02"
    assert bar == "─" * 40 + "  0/20"
    assert money == "cost $0.012000 of at most $0.200000 | 12 queued, 8 running"
    assert waiting == "12 forks wait for one of 8 slots to become free"


def test_nothing_is_said_of_waiting_when_nothing_waits() -> None:
    assert len(drawn(shapes.run(passed=2))) == 3


def test_words_of_the_server_cannot_move_the_cursor() -> None:
    run = shapes.waiting_run(1, 0, "1 fork waits\x1b[2Jfor nothing\r")
    assert drawn(run)[-1] == "1 fork waits�[2Jfor nothing�"


def test_on_a_terminal_the_picture_is_drawn_in_place() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    with following(console) as look:
        look(shapes.run(pending=2))
        look(shapes.run(passed=1, pending=1))
    assert "0/2" in out.getvalue()
    assert "1/2: 1 passed" in out.getvalue()
    assert "\x1b[" in out.getvalue()


def test_elsewhere_a_line_is_written_when_a_count_has_changed() -> None:
    out = io.StringIO()
    with following(Console(file=out, width=200)) as look:
        for run in (
            shapes.run(pending=2),
            shapes.run(pending=2),
            shapes.run(passed=1, pending=1),
        ):
            look(run)
    assert out.getvalue().splitlines() == [
        "r-1: 0/2 | 2 running; cost $0.012000 of at most $0.200000",
        "r-1: 1/2: 1 passed | 1 running; cost $0.012000 of at most $0.200000",
    ]


class Endless(ThreadingHTTPServer):
    """A server whose run never ends: the second look at it waits until the test is over."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Endlessly)
        self.followed = Event()
        self.done = Event()
        self.asked: list[str] = []


class Endlessly(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endless

    def do_GET(self) -> None:
        if self.server.asked.count(self._line()) == 1:
            self.server.followed.set()
            self.server.done.wait()
        self._answer(200, shapes.run(pending=2))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201, shapes.started())

    def _answer(self, status: int, told: object) -> None:
        self.server.asked.append(self._line())
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _line(self) -> str:
        return f"{self.command} {self.path.partition('?')[0]}"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True


@pytest.fixture
def endless() -> Iterator[Endless]:
    server = Endless()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.done.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_lets_go_of_the_run_and_says_how_to_come_back(
    endless: Endless, as_json: bool
) -> None:
    args = ["runs", "start", "task-suite", "--count", "2", "--spend-cap", "1", "--sh", "true"]
    with subprocess.Popen(
        [sys.executable, "-m", "promigence.cli", *args, *(["--json"] if as_json else [])],
        env={
            **os.environ,
            "PROMIGENCE_API_KEY": "k",
            "PROMIGENCE_BASE_URL": f"http://127.0.0.1:{endless.server_port}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert endless.followed.wait(30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "the run goes on" in err
    assert "promigence runs wait r-1" in err
    assert "promigence runs cancel r-1" in err
    assert "Traceback" not in err
    assert out == (
        json.dumps({"run_id": "r-1", "detached": True}, indent=2) + "\n" if as_json else ""
    )
    assert not any("cancel" in line for line in endless.asked)
