"""The guest's side of the demo, run natively: a warm test process of its own, real HTTP, real patches."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from demo import environment, policy
from demo.rollout import __main__ as rollout
from demo.rollout import warm_server, warm_tests

START = """
import sys
from pathlib import Path
from demo.rollout import warm_server
run = Path(sys.argv[2])
sys.exit(warm_server.main([sys.argv[1]], run / "tests.sock", run / "tests.pid"))
"""
ASK = """
import sys
from pathlib import Path
from demo.rollout import warm_tests
sys.exit(warm_tests.run_tests(sys.argv[2:], Path(sys.argv[1])))
"""
PROJECT = {
    "thing.py": "def answer(): return 42\n",
    "tests/test_thing.py": "import thing\n\n\ndef test_answer():\n    assert thing.answer() == 42\n",
}


class Project:
    """A tiny project in `root` and the folder of its warm test process's socket."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self.root = folder / "project"
        self.socket = self.run / "tests.sock"
        self.run.mkdir()
        for name, text in PROJECT.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Warm once for all tests of this module: a run leaves nothing behind that another one could see."""
    made = Project(tmp_path_factory.mktemp("warm"))
    with warm(made.root, made.run):
        yield made


def test_a_run_gives_its_output_and_exit_code(project: Project) -> None:
    ended = ask(project.socket, "tests")

    assert ended.returncode == 0
    assert "1 passed" in ended.stdout


def test_a_changed_source_is_imported_afresh(project: Project) -> None:
    project.write("thing.py", "def answer(): return 41\n")

    ended = ask(project.socket, "tests")
    project.write("thing.py", PROJECT["thing.py"])

    assert ended.returncode == 1
    assert "41 == 42" in ended.stdout


def test_a_run_that_dies_has_failed_and_the_next_one_works(project: Project) -> None:
    dies = project.write("dies.py", "import os\n\n\ndef test_it(): os.abort()\n")

    assert ask(project.socket, str(dies)).returncode == warm_tests.DIED
    assert ask(project.socket, "tests").returncode == 0


def test_a_run_leaves_no_trace(project: Project) -> None:
    writes = project.write("writes.py", "def test_it(tmp_path): (tmp_path / 'x').write_text('x')\n")
    before = set(project.root.parent.rglob("*"))

    assert ask(project.socket, str(writes), "tests").returncode == 0

    assert set(project.root.parent.rglob("*")) == before


def test_two_runs_draw_different_random_numbers(project: Project) -> None:
    draws = project.write("draws.py", "import random\n\n\ndef test_it(): print(random.random())\n")

    first, second = (ask(project.socket, "-s", str(draws)).stdout.splitlines()[0] for _ in range(2))

    assert first != second


def test_a_client_that_goes_away_ends_its_run(project: Project, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    hangs = project.write(
        "hangs.py",
        "import os, signal\n\n\ndef test_it():\n"
        f"    with open({str(pipe)!r}, 'w') as pipe: pipe.write(str(os.getpid()))\n"
        "    signal.pause()\n",
    )
    client = asking(project.socket, str(hangs))
    run = os.pidfd_open(int(pipe.read_text()))
    try:
        client.kill()
        client.wait(30)
        assert select.select([run], [], [], 30)[0], "the run outlived its client"
    finally:
        os.close(run)
        client.communicate()


def test_a_request_that_makes_no_sense_leaves_the_server_working(project: Project) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(project.socket))
        connection.sendall(b"not json")
        assert connection.recv(1) == b""

    assert ask(project.socket, "tests").returncode == 0


def test_a_wake_up_leaves_the_server_working(project: Project) -> None:
    os.kill(int((project.run / "tests.pid").read_text()), signal.SIGUSR1)

    assert ask(project.socket, "tests").returncode == 0


def test_forks_of_one_generator_part_when_they_wake() -> None:
    state = random.getstate()
    drawn = []
    for _ in range(2):
        random.setstate(state)
        warm_server._reseed(signal.SIGUSR1, None)
        drawn.append(random.getrandbits(64))

    assert drawn[0] != drawn[1]


def test_tests_that_cannot_be_imported_fail_the_warm_up(tmp_path: Path) -> None:
    broken = Project(tmp_path)
    broken.write("tests/test_broken.py", "import no_such_module\n")

    ended = start(broken.root, broken.run)

    assert ended.returncode == 1
    assert "no_such_module" in ended.stderr
    assert not broken.socket.exists()


def test_without_a_server_the_environment_is_at_fault(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not warm_tests.SOCKET.exists(), "a warm test process runs on this machine"

    assert warm_tests.main(["tests"]) == warm_tests.NO_SERVER
    assert "does not answer" in capfd.readouterr().err


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The demo's real project, warm; `roll_out` takes its patches back."""
    folder = tmp_path_factory.mktemp("real")
    shutil.copytree(environment.prepare() / "repo", folder / "repo")
    shutil.copy(Path(environment.__file__).parent / "instruction.md", folder)
    with warm(folder / "repo", folder):
        yield folder


@pytest.fixture
def roll_out(real: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], int]]:
    source = real / "repo" / rollout.SOURCE
    before = source.read_text()

    def call(url: str, index: int) -> int:
        monkeypatch.setenv("PROMIGENCE_FORK_INDEX", str(index))
        arguments = ["--policy", url]
        return rollout.main(arguments, real / "repo", real / "instruction.md", real / "tests.sock")

    yield call
    source.write_text(before)


@pytest.mark.parametrize("index", range(len(policy.CYCLE)))
def test_a_rollout_ends_as_its_patch_deserves(
    roll_out: Callable[[str, int], int], index: int
) -> None:
    with serving_hidden_tests() as server:
        code = roll_out(f"http://{server.address}", index)

    assert code == {"passed": 0, "failed": 1}[policy.expected_outcome(index)]


def test_a_patch_that_does_not_apply_is_the_tasks_failure(
    roll_out: Callable[[str, int], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(policy, "PATCHES", tmp_path)
    (tmp_path / f"{policy.patch_name(0)}.patch").write_text("no diff at all\n")

    with serving_hidden_tests() as server:
        assert roll_out(f"http://{server.address}", 0) == rollout.FAILED


def test_a_patch_cannot_reach_outside_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "target").write_text("old\n")
    patch = "--- a/../target\n+++ b/../target\n@@ -1 +1 @@\n-old\n+new\n"

    assert not rollout.apply(patch, tmp_path / "repo")
    assert (tmp_path / "target").read_text() == "old\n"


def test_a_policy_that_is_away_is_the_environments_fault(
    roll_out: Callable[[str, int], int],
) -> None:
    with serving_hidden_tests() as server:
        address = server.address

    assert roll_out(f"http://{address}", 0) == rollout.ENVIRONMENT_FAULT


def test_a_policy_that_refuses_is_the_environments_fault(
    roll_out: Callable[[str, int], int],
) -> None:
    with serving_hidden_tests() as server:
        assert roll_out(f"http://{server.address}/elsewhere", 0) == rollout.ENVIRONMENT_FAULT


def serving_hidden_tests() -> AbstractContextManager[policy.Policy]:
    hidden = environment.prepare() / "hidden" / "test_hidden.py"
    return policy.serving(hidden.read_text(), slow_index=None)


@contextmanager
def warm(root: Path, run: Path) -> Iterator[None]:
    ended = start(root, run)
    assert ended.returncode == 0, ended.stderr
    server = os.pidfd_open(int((run / "tests.pid").read_text()))
    try:
        yield
    finally:
        signal.pidfd_send_signal(server, signal.SIGKILL)
        os.close(server)


def start(root: Path, run: Path) -> subprocess.CompletedProcess[str]:
    checkout = str(Path(environment.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-c", START, str(root), str(run)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([checkout, str(root)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def ask(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with asking(path, *arguments) as client:
        output, errors = client.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, client.returncode, output, errors)


def asking(path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ASK, str(path), *arguments],
        cwd=Path(environment.__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
