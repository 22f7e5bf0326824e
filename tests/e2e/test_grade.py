"""The file by which a grade tells its reward, in real machines: whose it is, and what of a guest is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.machine import Command
from app.errors import BadRequest, EnvironmentFault, FailureKind, TooLarge
from tests.e2e.conftest import Frozen
from tests.e2e.inside import Inside, Machine, new_name, shell

pytestmark = pytest.mark.machines

LIMIT = 64 * 1024
WRITE = """printf '{"reward": 0.5}' >"$PROMIGENCE_RESULT" """


@pytest.fixture(scope="module")
def machine(inside: Inside, frozen: Frozen) -> Machine:
    """A fork, as everything that is graded is one."""
    return inside.fork(frozen.bundle)


def grade(sh: str, task: str, **more: object) -> Command:
    return replace(shell(sh, **more), grades=task)  # type: ignore[arg-type]


def ended(machine: Machine, sh: str = "true", user: str | None = None) -> str:
    """A command that has ended; its id."""
    task = machine.start("", shell(sh, user=user))
    machine.end(task)
    return task


def result(machine: Machine, sh: str, task: str | None = None, **more: object) -> bytes | None:
    """What a grade left in its result file."""
    exec_id = machine.start("", grade(sh, task or ended(machine), **more))
    end = machine.end(exec_id)
    assert end.exit_code == 0, end.stderr
    return machine.guest.result(machine.name, exec_id, LIMIT)


def test_a_grade_writes_its_result_and_it_can_be_read_twice(machine: Machine) -> None:
    exec_id = machine.start("", grade(WRITE, ended(machine)))
    machine.end(exec_id)
    for _ in range(2):
        assert machine.guest.result(machine.name, exec_id, LIMIT) == b'{"reward": 0.5}'
    assert result(machine, "true") is None


def test_it_is_written_by_the_grades_user_into_a_directory_of_its_own(machine: Machine) -> None:
    """The directory is made at the start, under a name that no other user can list, for this user alone."""
    look = 'd=$(dirname "$PROMIGENCE_RESULT"); stat -c "%u %a" "$d"; ls -A "$d"; id -u'
    end = machine.run("", grade(look, ended(machine), user="4242"))
    assert end.stdout.split() == [b"4242", b"700", b"4242"]
    assert result(machine, WRITE, user="4242") == b'{"reward": 0.5}'
    denied = machine.run("", shell("ls /run/promigence/results", user="4242"))
    assert denied.exit_code != 0
    assert b"Permission denied" in denied.stderr


def test_each_grade_has_a_directory_that_nobody_had_before(machine: Machine) -> None:
    paths = {
        machine.run("", grade('echo "$PROMIGENCE_RESULT"', ended(machine))).stdout for _ in range(3)
    }
    assert len(paths) == 3
    assert all(len(path.split(b"/")[-2]) == 32 for path in paths)


def test_the_name_is_ours_whatever_the_caller_sets(machine: Machine) -> None:
    env = (("PROMIGENCE_RESULT", "/tmp/mine"),)
    end = machine.run("", grade('echo "$PROMIGENCE_RESULT"', ended(machine), env=env))
    assert end.stdout.startswith(b"/run/promigence/results/")
    assert machine.run("", shell('echo "-$PROMIGENCE_RESULT"')).stdout == b"-\n"


@pytest.mark.parametrize(
    "sh",
    [
        'ln -s /etc/passwd "$PROMIGENCE_RESULT"',
        'mkfifo "$PROMIGENCE_RESULT"',
        'mkdir "$PROMIGENCE_RESULT"',
        'mknod "$PROMIGENCE_RESULT" c 1 5',
        'touch "$PROMIGENCE_RESULT"; mount -o bind /etc/passwd "$PROMIGENCE_RESULT"',
    ],
)
def test_what_is_no_regular_file_of_that_directory_is_refused(machine: Machine, sh: str) -> None:
    exec_id = machine.start("", grade(sh, ended(machine)))
    assert machine.end(exec_id).exit_code == 0
    with pytest.raises(BadRequest, match="regular file"):
        machine.guest.result(machine.name, exec_id, LIMIT)
    machine.guest.ping(machine.name, 30.0)


def test_a_path_that_was_put_in_its_place_is_not_what_is_read(machine: Machine) -> None:
    """A grade that is root may move its directory away and put another there: nobody's reward changes by that."""
    swap = 'd=$(dirname "$PROMIGENCE_RESULT"); mv "$d" "$d.old"; mkdir "$d"; ' + WRITE
    assert result(machine, swap) is None
    assert result(machine, WRITE + '; mount -t tmpfs x "$(dirname "$PROMIGENCE_RESULT")"') == (
        b'{"reward": 0.5}'
    )


def test_a_result_is_bounded(machine: Machine) -> None:
    exec_id = machine.start(
        "", grade('head -c 65537 /dev/zero >"$PROMIGENCE_RESULT"', ended(machine))
    )
    machine.end(exec_id)
    with pytest.raises(TooLarge):
        machine.guest.result(machine.name, exec_id, LIMIT)


def test_what_the_graded_command_left_running_is_gone_before_its_grade(machine: Machine) -> None:
    """A daemon that waits for the grade's file, to write it first or to overwrite it."""
    lurk = (
        "echo $$ >/tmp/lurks; while :; do "
        "for d in /run/promigence/results/*; do echo bad >$d/result.json; done; done"
    )
    task = ended(machine, f"sh -c '{lurk}' >/dev/null 2>&1 & exec sleep 0.2")
    assert machine.says("kill -0 $(cat /tmp/lurks) && echo lurks") == "lurks"
    assert result(machine, "sleep 0.3; " + WRITE, task) == b'{"reward": 0.5}'
    assert machine.says("kill -0 $(cat /tmp/lurks) 2>/dev/null || echo gone") == "gone"


def test_other_daemons_of_the_machine_live_on(machine: Machine) -> None:
    other = machine.start("", shell("sleep 1000 >/dev/null 2>&1 & echo $!"))
    pid = int(machine.end(other).stdout)
    result(machine, WRITE)
    assert machine.says(f"kill -0 {pid} && kill {pid} && echo lives") == "lives"


def test_only_a_command_that_has_ended_is_graded(machine: Machine) -> None:
    running = machine.start("sleep 1000")
    for task in (running, new_name()):
        with pytest.raises(EnvironmentFault) as fault:
            machine.start("", grade("true", task))
        assert fault.value.kind is FailureKind.EXEC_NOT_STARTED
    machine.guest.interrupt(machine.name, running)
    machine.end(running)


def test_a_result_of_what_is_no_grade_cannot_be_read(machine: Machine) -> None:
    with pytest.raises(EnvironmentFault, match="no such result"):
        machine.guest.result(machine.name, ended(machine), LIMIT)


def test_a_result_is_read_by_a_worker_that_comes_later(fork: Machine) -> None:
    exec_id = fork.start("", grade(WRITE, ended(fork)))
    fork.end(exec_id)
    fork.guest.close(fork.name)
    fork.guest.attach(fork.name)
    assert fork.guest.result(fork.name, exec_id, LIMIT) == b'{"reward": 0.5}'
