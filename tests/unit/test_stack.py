"""The stack as data: its parts, what it writes down, how long an ended part waits."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import Conflict, Unavailable
from infra.stack import records
from infra.stack.parts import Plan, parts, redis_argv
from infra.stack.process import Process, boot_id, end_at_once, find
from infra.stack.records import Identity, Places
from infra.stack.supervisor import LONGEST_PAUSE_S, pause_s
from workers.probes import wait_until_well


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "stack", tmp_path / "runtime" / "abc")


ALL = ("api", "worker", "billing", "flower")


def plan(redis: Path | None = Path("/usr/bin/redis-server"), names: tuple[str, ...] = ALL) -> Plan:
    socket = Path("/run/p/redis.sock")
    return Plan(Path("/co/.promigence"), redis, socket, ("server",), frozenset(names))


def test_the_parts_of_a_stack() -> None:
    made = {part.name: part for part in parts(plan())}

    assert list(made) == ["redis", "api", "worker", "billing", "flower"]
    assert made["api"].argv == ("server", "serve", "--dir", "/co/.promigence")
    assert [name for name, part in made.items() if part.foundation] == ["redis"]


def test_an_operators_own_broker_is_no_part() -> None:
    assert "redis" not in {part.name for part in parts(plan(redis=None))}


def test_a_host_of_a_deployment_is_its_worker_alone() -> None:
    assert [part.name for part in parts(plan(redis=None, names=("worker",)))] == ["worker"]


def test_no_password_stands_in_an_argument_list() -> None:
    words = {word for part in parts(plan()) for word in part.argv}

    assert not any("password" in word or "auth" in word for word in words)


def test_redis_is_on_a_socket_of_its_user_alone_and_never_evicts() -> None:
    argv = redis_argv(Path("/usr/bin/redis-server"), Path("/run/p/redis.sock"))
    options = dict(zip(argv[1::2], argv[2::2], strict=True))

    assert options["--port"] == "0"
    assert options["--unixsocket"] == "/run/p/redis.sock"
    assert options["--unixsocketperm"] == "700"
    assert options["--maxmemory-policy"] == "noeviction"


def test_a_part_that_keeps_ending_waits_longer_up_to_a_limit() -> None:
    pauses = [pause_s(failures) for failures in range(1, 12)]

    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S


def test_what_is_written_down_is_read_back_and_is_private(places: Places) -> None:
    records.make_directories(places)
    identity = Identity("abc", Process(1, 2, "boot"))
    processes = {"api": Process(3, 4, "boot"), "worker": Process(5, 6, "boot")}

    records.write_identity(places, identity)
    records.write_processes(places, processes)

    assert records.read_identity(places) == identity
    assert records.read_processes(places) == processes
    assert places.identity.stat().st_mode & 0o777 == 0o600


def test_a_torn_record_is_none(places: Places) -> None:
    records.make_directories(places)
    places.identity.write_text('{"stack_id": "ab')

    assert records.read_identity(places) is None
    assert records.read_processes(places) == {}


def test_removing_what_ran_keeps_data_and_is_safe_twice(places: Places) -> None:
    records.make_directories(places)
    (places.directory / "promigence.db").touch()
    records.write_private(places.environment, "A=b\n")
    records.write_identity(places, Identity("abc", None))

    records.remove_running(places)
    records.remove_running(places)

    assert {path.name for path in places.directory.iterdir()} == {"promigence.db", "logs"}
    assert not places.run_dir.exists()


def test_a_runtime_directory_that_is_a_link_is_refused(places: Places, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    places.run_dir.parent.mkdir()
    places.run_dir.symlink_to(elsewhere)

    with pytest.raises(Unavailable, match="PROMIGENCE_RUN_DIR"):
        records.make_directories(places)


def test_one_at_a_time(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LOCK_WITHIN_S", 0.0)

    with records.alone(places), pytest.raises(Conflict, match="at work"), records.alone(places):
        pytest.fail("two at once")
    with records.alone(places):
        pass


def test_a_process_is_told_from_the_next_owner_of_its_number() -> None:
    me = find(os.getpid())

    assert me is not None
    assert me.alive()
    assert not Process(me.pid, me.started_ticks + 1, boot_id()).alive()
    assert not Process(me.pid, me.started_ticks, "another boot").alive()


def test_a_frozen_process_is_ended_at_once_and_the_next_of_its_number_is_not() -> None:
    sleeper = subprocess.Popen(("sleep", "60"))
    try:
        sleeper.send_signal(signal.SIGSTOP)
        process = find(sleeper.pid)
        assert process is not None
        # Gone long ago, by its start time: whoever has the number now is somebody else.
        assert end_at_once(replace(process, started_ticks=process.started_ticks - 1))
        assert sleeper.poll() is None
        assert end_at_once(process)
        assert sleeper.wait(10) == -signal.SIGKILL
        assert end_at_once(process)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_waiting_ends_with_what_ails_when_the_stack_is_gone() -> None:
    told: list[str] = []

    ailing = wait_until_well(
        {"api": lambda: None, "worker": lambda: "no answer"},
        within_s=60,
        gone=iter([False, True]).__next__,
        progress=told.append,
    )

    assert ailing == {"worker": "no answer"}
    assert told == ["api"]


def test_parts_log_to_files_or_where_their_parent_does(places: Places) -> None:
    """In a container what is written to standard error is the log; a file there would be nobody's."""
    records.make_directories(places)
    with records.log_of(places, "api") as out:
        assert out is not None
        out.write(b"said")
    assert (places.logs / "api.log").read_bytes() == b"said"

    apart = replace(places, directory=places.directory / "apart", log_files=False)
    records.make_directories(apart)
    with records.log_of(apart, "api") as out:
        assert out is None
    assert not apart.logs.exists()


def test_a_long_log_gives_way_to_a_new_one(places: Places) -> None:
    records.make_directories(places)
    with (places.logs / "api.log").open("wb") as old:
        old.truncate(records.LOG_LIMIT_BYTES + 1)
    with records.log_of(places, "api"):
        pass
    assert (places.logs / "api.log").stat().st_size == 0
    assert (places.logs / "api.log.1").stat().st_size == records.LOG_LIMIT_BYTES + 1
