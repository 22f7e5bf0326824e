"""Set-up does each step once, by content; its keeper step stands in for all, with a script of the test's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "infra" / "setup"
COUNTING = "#!/bin/sh\necho ran >> runs\nmkdir -p .promigence/bin\ntouch .promigence/bin/keeper\n"
FAILING = "#!/bin/sh\necho ran >> runs\necho 'no compiler' >&2\nexit 3\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    setup = tmp_path / "infra" / "setup"
    setup.mkdir(parents=True)
    for name in ("run", "common.sh"):
        shutil.copy(SETUP / name, setup)
    (tmp_path / "infra/qemu").mkdir()
    (tmp_path / "infra/qemu/keeper.c").write_text("int main(void) { return 0; }\n")
    _script(tmp_path, COUNTING)
    return tmp_path


def test_a_step_that_is_done_is_not_done_again(checkout: Path) -> None:
    assert "done" in _run(checkout).stderr
    again = _run(checkout)
    assert (again.returncode, again.stderr) == (0, "")
    assert _runs(checkout) == 1


def test_a_changed_input_a_changed_script_or_a_lost_product_does_it_again(checkout: Path) -> None:
    _run(checkout)
    (checkout / "infra/qemu/keeper.c").write_text("int main(void) { return 1; }\n")
    _run(checkout)
    assert _runs(checkout) == 2
    _script(checkout, COUNTING + "true\n")
    _run(checkout)
    assert _runs(checkout) == 3
    (checkout / ".promigence/bin/keeper").unlink()
    _run(checkout)
    assert _runs(checkout) == 4


def test_a_failed_step_shows_why_and_is_tried_again(checkout: Path) -> None:
    _script(checkout, FAILING)
    failed = _run(checkout)
    assert failed.returncode != 0
    assert "no compiler" in failed.stderr
    _run(checkout)
    assert _runs(checkout) == 2


def test_a_failure_undoes_the_stamp_of_an_earlier_success(checkout: Path) -> None:
    _run(checkout)
    _script(checkout, FAILING)
    _run(checkout)
    _script(checkout, COUNTING)
    assert _run(checkout).returncode == 0
    assert _runs(checkout) == 3


def _script(checkout: Path, text: str) -> None:
    script = checkout / "infra/setup/keeper.sh"
    script.write_text(text)
    script.chmod(0o755)


def _run(checkout: Path) -> subprocess.CompletedProcess[str]:
    argv = [str(checkout / "infra/setup/run"), "keeper"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


def _runs(checkout: Path) -> int:
    return len((checkout / "runs").read_text().splitlines())
