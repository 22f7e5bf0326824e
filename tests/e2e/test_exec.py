"""Commands inside real machines: started at most once, ended for sure, their output kept."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.machine import Command
from app.errors import EnvironmentFault, FailureKind, NotFound
from infra.guest import SshGuest
from tests.e2e.inside import Heard, Machine, new_name, shell

pytestmark = pytest.mark.machines

EAT = "dd if=/dev/zero of=/dev/null bs=60M count=30 &"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# How it starts


def test_exit_code_and_both_streams_come_back_apart(machine: Machine) -> None:
    end = machine.run("echo out; echo err >&2; exit 7")
    assert (end.exit_code, end.signal, end.timed_out) == (7, None, False)
    assert (end.stdout, end.stderr, end.truncated) == (b"out\n", b"err\n", False)
    assert end.duration_ns > 0


def test_arguments_and_environment_arrive_as_they_were(machine: Machine) -> None:
    odd = "two words\n'quoted' $HOME ä"
    script = 'printf "%s|" "$1" "$ODD" "$PATH" "$HOME" "$USER" "$LOGNAME" "$PWD"; cat'
    command = Command(("/bin/sh", "-c", script, "sh", odd), 10**11, env=(("ODD", odd),))
    said = machine.run("", command).stdout.decode()
    assert said == f"{odd}|{odd}|{PATH}|/root|root|root|/|"


def test_what_the_caller_sets_stands(machine: Machine) -> None:
    command = shell('echo "$PATH:$HOME:$(pwd)"', cwd="/tmp", env=(("PATH", "/bin"), ("HOME", "/x")))
    assert machine.run("", command).stdout == b"/bin:/x:/tmp\n"


def test_a_command_runs_as_the_user_it_names(machine: Machine) -> None:
    machine.says("grep -q ^eve: /etc/passwd || echo eve:x:77:78::/home/eve:/bin/sh >>/etc/passwd")
    machine.says("grep -q ^crew: /etc/group || echo crew:x:99:eve >>/etc/group")
    by_name = machine.run("", shell("id -u; id -g; id -G; echo $HOME", user="eve"))
    assert by_name.stdout.split() == b"77 78 78 99 /home/eve".split()
    by_number = machine.run("", shell("id -u; id -g; echo $HOME", user="4242"))
    assert by_number.stdout.split() == b"4242 4242 /".split()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (Command(("/no/such/program",), 10**9), "/no/such/program: No such file or directory"),
        (Command(("/etc/passwd",), 10**9), "/etc/passwd: Permission denied"),
        (shell("true", cwd="/no/such"), "cwd /no/such: No such file or directory"),
        (shell("true", user="nobody-here"), "user nobody-here: there is no such user in the image"),
    ],
)
def test_what_cannot_start_is_told_and_its_id_is_free(
    machine: Machine, command: Command, reason: str
) -> None:
    exec_id = new_name()
    with pytest.raises(EnvironmentFault) as refused:
        machine.guest.start(machine.name, exec_id, command)
    assert (refused.value.kind, refused.value.message) == (FailureKind.EXEC_NOT_STARTED, reason)
    with pytest.raises(EnvironmentFault, match="does not know this command"):
        machine.guest.end(machine.name, exec_id)
    machine.guest.start(machine.name, exec_id, shell("exit 3"))
    assert machine.end(exec_id).exit_code == 3


def test_an_id_starts_once_however_often_it_is_asked(machine: Machine) -> None:
    exec_id = new_name()
    for _ in range(3):
        machine.guest.start(machine.name, exec_id, shell(f"echo once >>/tmp/{exec_id}"))
    assert machine.end(exec_id).exit_code == 0
    machine.guest.start(machine.name, exec_id, shell(f"echo again >>/tmp/{exec_id}"))
    assert machine.says(f"cat /tmp/{exec_id}") == "once"


def test_twenty_at_once_do_not_mix(machine: Machine) -> None:
    def one(number: int) -> tuple[int | None, bytes]:
        end = machine.run(f"echo start{number}; sleep 0.2; echo end{number}; exit {number}")
        return end.exit_code, end.stdout

    with ThreadPoolExecutor(20) as pool:
        ends = list(pool.map(one, range(20)))
    assert ends == [(n, f"start{n}\nend{n}\n".encode()) for n in range(20)]


# How it ends


def test_a_signal_is_not_an_exit_code(machine: Machine) -> None:
    end = machine.run("echo before; kill -9 $$")
    assert (end.exit_code, end.signal, end.timed_out, end.stdout) == (None, 9, False, b"before\n")
    assert machine.run("sh -c 'kill -9 $$'; exit $?").exit_code == 128 + 9


def test_past_its_limit_all_of_it_dies_and_its_output_stays(machine: Machine) -> None:
    command = shell("(sleep 983; echo no) & echo said; sleep 984; echo no", timeout_s=0.7)
    end = machine.run("", command)
    assert (end.exit_code, end.signal, end.timed_out) == (None, None, True)
    assert end.stdout == b"said\n"
    assert 0.7e9 <= end.duration_ns < machine.inside.patience_s * 1e9
    assert machine.run("pgrep -f 'sleep 98[34]'").stdout == b""


def test_an_interrupt_kills_all_of_it(machine: Machine) -> None:
    exec_id = machine.start("sleep 985 & sleep 986")
    machine.guest.interrupt(machine.name, exec_id)
    end = machine.end(exec_id)
    assert (end.exit_code, end.signal, end.timed_out) == (None, 9, False)
    assert machine.run("pgrep -f 'sleep 98[56]'").stdout == b""
    machine.guest.interrupt(machine.name, exec_id)
    assert machine.end(exec_id) == end


def test_a_daemon_that_keeps_the_streams_does_not_keep_the_end_and_lives_on(
    machine: Machine,
) -> None:
    mark = f"/tmp/{new_name()}"
    daemon = f"(while sleep 0.1; do echo noise; echo noise >&2; echo x >>{mark}; done) &"
    end = machine.run(f"{daemon} echo started")
    assert (end.exit_code, end.stdout.splitlines()[0]) == (0, b"started")
    machine.says(
        f"n=$(wc -l <{mark}); until [ $(wc -l <{mark}) -gt $((n + 2)) ]; do sleep 0.1; done"
    )


def test_each_end_is_told_once(machine: Machine) -> None:
    exec_id = machine.start("true")
    while (heard := machine.inside.heard.next_end(machine.inside.patience_s))[1] != exec_id:
        pass
    assert heard == (machine.name, exec_id)
    assert machine.end(exec_id).exit_code == 0


def test_one_that_runs_has_no_end_yet(machine: Machine) -> None:
    exec_id = machine.start("read x </tmp/never || sleep 60")
    assert machine.guest.end(machine.name, exec_id, wait_s=0.05) is None
    machine.guest.interrupt(machine.name, exec_id)
    machine.end(exec_id)


# What it printed


def test_long_output_comes_back_byte_by_byte(machine: Machine) -> None:
    end = machine.run("dd if=/dev/urandom bs=64k count=48 2>/dev/null | tee /tmp/long; echo e >&2")
    assert (len(end.stdout), end.stderr, end.truncated) == (48 << 16, b"e\n", False)
    seen = machine.says("sha256sum </tmp/long").split()[0]
    assert hashlib.sha256(end.stdout).hexdigest() == seen


@pytest.mark.parametrize("printed", [100, 100_000])
def test_what_a_running_command_has_printed_is_read_in_parts(
    machine: Machine, printed: int
) -> None:
    exec_id = machine.start(
        f"head -c {printed} /dev/zero | tr '\\0' x; echo e >&2; touch /tmp/{printed}; sleep 600"
    )
    machine.says(f"until test -e /tmp/{printed}; do sleep 0.05; done")
    guest, name = machine.guest, machine.name
    whole = guest.output(name, exec_id, "stdout", 0, 1 << 20)
    assert whole == b"x" * printed
    assert guest.output(name, exec_id, "stderr", 0, 1 << 20) == b"e\n"
    assert guest.output(name, exec_id, "stdout", printed - 5, 3) == b"xxx"
    assert guest.output(name, exec_id, "stdout", printed + 5, 3) == b""
    guest.interrupt(name, exec_id)
    assert len(machine.end(exec_id).stdout) == printed
    with pytest.raises(NotFound):
        guest.output(name, "unknown", "stdout", 0, 9)


def test_what_is_beyond_its_limit_is_read_when_it_has_ended(machine: Machine) -> None:
    long = shell("seq 10000; touch /tmp/beyond; sleep 600", output_limit_bytes=8192)
    exec_id = machine.start("", long)
    machine.says("until test -e /tmp/beyond; do sleep 0.05; done")
    with pytest.raises(NotFound, match="than is kept"):
        machine.guest.output(machine.name, exec_id, "stdout", 0, 1 << 20)
    machine.guest.interrupt(machine.name, exec_id)
    assert len(machine.end(exec_id).stdout) == 8192


@pytest.mark.parametrize("lines", [2000, 2731, 9000])
def test_over_its_limit_head_and_tail_are_kept(machine: Machine, lines: int) -> None:
    end = machine.run("", shell(f"seq 10000 $((9999 + {lines}))", output_limit_bytes=8192))
    whole = b"".join(b"%d\n" % number for number in range(10000, 10000 + lines))
    assert end.truncated
    assert end.stdout == whole[:4096] + whole[-4096:]


def test_a_full_disk_cuts_the_output_and_not_the_command(fork: Machine) -> None:
    fork.says("fallocate -l $(df -k / | awk 'NR==2 {print $4 - 8192}')k /fill")
    fork.run("dd if=/dev/zero of=/rest bs=4k")
    end = fork.run("seq 100000; exit 5")
    assert (end.exit_code, end.truncated) == (5, True)
    assert fork.run("echo short").stdout == b"short\n"


def test_output_leaves_no_trace_in_the_machine(machine: Machine) -> None:
    before = machine.says("find / -xdev | sort | sha256sum")
    machine.run("seq 100000")
    assert machine.says("find / -xdev | sort | sha256sum") == before


def test_what_ended_first_is_let_go_before_it_fills_the_memory(fork: Machine) -> None:
    commands = [fork.start("head -c 12000 /dev/zero | tee /dev/stderr") for _ in range(140)]
    assert {len(fork.end(exec_id).stdout) for exec_id in commands[-8:]} == {12000}
    fork.guest.close(fork.name)
    fork.guest.attach(fork.name)
    with pytest.raises(EnvironmentFault, match="let go of this command's output"):
        fork.guest.end(fork.name, commands[0])
    fork.guest.start(fork.name, commands[0], shell("echo again >/again"))
    assert fork.run("cat /again").exit_code == 1


# What goes wrong inside


def test_memory_that_a_command_used_up_itself_is_told(fork: Machine) -> None:
    eaten = fork.run(f"{EAT} {EAT} {EAT} wait")
    assert (eaten.victim_of_own_memory, eaten.victim_elsewhere) == (True, False)
    after = fork.run("true")
    assert (after.victim_of_own_memory, after.victim_elsewhere) == (False, False)


def test_memory_that_others_used_up_meanwhile_is_told_apart(fork: Machine) -> None:
    bystander = fork.start("until test -e /tmp/eaten; do sleep 0.1; done; exit 3")
    fork.run(f"{EAT} {EAT} {EAT} wait; touch /tmp/eaten")
    end = fork.end(bystander)
    assert (end.exit_code, end.victim_of_own_memory, end.victim_elsewhere) == (3, False, True)


def test_root_can_kill_all_but_the_news_of_it(fork: Machine) -> None:
    bystander = fork.start("sleep 60")
    killer = fork.start("kill -9 1; echo said; kill -9 -1; exit 6")
    assert (fork.end(killer).exit_code, fork.end(killer).stdout) == (6, b"said\n")
    assert fork.end(bystander).signal == 9
    fork.guest.ping(fork.name, fork.inside.patience_s)
    # Our SSH server was among them: the next command opens the channel anew.
    assert fork.says("echo again") == "again"


def test_a_dead_machine_is_lost_and_never_an_exit_code(fork: Machine) -> None:
    exec_id = fork.start("sleep 60")
    waited: list[object] = []

    def wait() -> None:
        try:
            waited.append(fork.guest.end(fork.name, exec_id, wait_s=60))
        except EnvironmentFault as fault:
            waited.append(fault.kind)

    waiting = threading.Thread(target=wait)
    waiting.start()
    fork.inside.machines.kill(fork.name)
    waiting.join(fork.inside.patience_s)
    assert waited == [FailureKind.GUEST_LOST]
    while fork.inside.heard.next_loss(fork.inside.patience_s) != fork.name:
        pass
    with pytest.raises(EnvironmentFault) as lost:
        fork.guest.ping(fork.name, 1.0)
    assert lost.value.kind is FailureKind.GUEST_LOST
    with pytest.raises(EnvironmentFault) as lost:
        fork.guest.start(fork.name, new_name(), shell("true"))
    assert lost.value.kind is FailureKind.GUEST_LOST


# Another worker takes over


def test_a_worker_that_takes_over_reads_the_ends_that_it_did_not_hear(fork: Machine) -> None:
    ended = fork.start("seq 5000; exit 4")
    assert fork.end(ended).exit_code == 4
    running = fork.start("sleep 0.5; echo late")
    fork.guest.close(fork.name)
    heard = Heard()
    successor = SshGuest(fork.inside.machine_dir, heard)
    try:
        successor.attach(fork.name)
        again = successor.end(fork.name, ended)
        assert again is not None
        assert (again.exit_code, len(again.stdout)) == (
            4,
            len(b"".join(b"%d\n" % n for n in range(1, 5001))),
        )
        late = successor.end(fork.name, running, wait_s=fork.inside.patience_s)
        assert late is not None
        assert late.stdout == b"late\n"
        with pytest.raises(EnvironmentFault) as unknown:
            successor.end(fork.name, "never-started")
        assert unknown.value.kind is FailureKind.EXEC_NOT_STARTED
    finally:
        successor.shut_down()
