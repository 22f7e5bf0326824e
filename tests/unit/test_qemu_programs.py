"""QEMU builds side by side: which of the programs that are named serve, and what is said of the others."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from app.domain.machine import Accelerator, Fingerprint, RestoreKey
from app.errors import EnvironmentFault, FailureKind, Unavailable
from infra.clock import HostClock
from infra.qemu import fingerprint, probe
from infra.qemu.fingerprint import survey
from infra.qemu.launch import Means, means_of, same_build
from infra.qemu.programs import look_at

MACHINES = "pc-q35-9.2   Standard PC\npc-q35-10.0   Standard PC"


def program(folder: Path, name: str, version: str, machines: str = MACHINES) -> str:
    """What answers as a QEMU does, and starts no guest."""
    said = f"QEMU emulator version {version}\nCopyright"
    return script(
        folder, name, f'case "$1" in --version) echo "{said}";; -machine) echo "{machines}";; esac'
    )


def script(folder: Path, name: str, does: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def surveyed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *programs: str
) -> tuple[tuple[Means, ...], Fingerprint]:
    monkeypatch.setattr(fingerprint, "_may_change_user", lambda: False)
    nothing = folder / "nothing"
    root = folder / "stack" / "machines"
    return survey("host", root, nothing, nothing, nothing, HostClock(), programs)


def test_each_build_has_a_key_and_the_first_is_what_templates_are_frozen_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "KVM", tmp_path / "kvm")
    new, old = (program(tmp_path, name, name) for name in ("10.0.3 (new)", "9.2.0 (old)"))
    means, seen = surveyed(tmp_path, monkeypatch, new, old)
    assert [key.qemu_build for key in seen.restore_keys] == ["10.0.3 (new)", "9.2.0 (old)"]
    assert {key.machine_type for key in seen.restore_keys} == {"pc-q35-10.0"}
    assert [each.hypervisor.program for each in means] == [new, old]
    assert [each.trial.program for each in means] == [new, old]
    assert tuple(each.hypervisor.key for each in means) == seen.restore_keys
    assert not [word for word in seen.missing if "QEMU" in word]


def test_a_program_that_does_not_work_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "KVM", tmp_path / "kvm")
    good = program(tmp_path, "good", "10.0")
    broken = script(tmp_path, "broken", "exit 3")
    other = script(tmp_path, "other", "echo 'GNU bash, version 5.2'")
    odd = program(tmp_path, "odd", "11.0", machines="q35   Standard PC")
    _, seen = surveyed(tmp_path, monkeypatch, "/no/such/qemu", broken, other, odd, good)
    assert [key.qemu_build for key in seen.restore_keys] == ["10.0"]
    said = "\n".join(seen.missing)
    assert "/no/such/qemu is not installed" in said
    assert f"{broken} does not work" in said
    assert f"{other} is no QEMU: it says 'GNU bash" in said
    assert f"{odd} has no versioned q35 machine" in said


def test_where_none_works_every_reason_is_told(tmp_path: Path) -> None:
    broken = script(tmp_path, "broken", "exit 3")
    with pytest.raises(Unavailable, match=r"/no/such is not installed.*; .*broken does not work"):
        look_at(("/no/such", broken), None)


def test_two_programs_of_one_build_are_one(tmp_path: Path) -> None:
    first, again = program(tmp_path, "first", "10.0"), program(tmp_path, "again", "10.0")
    builds, left_out = look_at((first, again), None)
    assert [build.program for build in builds] == [first]
    assert left_out == (f"{again} is the same build as {first}: not used",)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_a_program_that_the_machines_user_cannot_reach_is_left_out(tmp_path: Path) -> None:
    mine = program(tmp_path, "mine", "10.0")
    Path(mine).chmod(0o700)
    with pytest.raises(Unavailable, match=r"does not work: .*Permission denied"):
        look_at((mine,), 2_000_000_000)


def test_each_build_is_tried_under_kvm_and_remembered_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(probe, "KVM", tmp_path / "kvm")
    tried: list[str] = []

    def boots(trial: probe.Trial, *_: object) -> str | None:
        tried.append(Path(trial.program).name)
        return None if Path(trial.program).name == "new" else "died"

    monkeypatch.setattr(probe, "boots", boots)
    programs = (program(tmp_path, "new", "10.0"), program(tmp_path, "old", "9.2"))
    _, seen = surveyed(tmp_path, monkeypatch, *programs)
    assert [key.accelerator for key in seen.restore_keys] == [Accelerator.KVM, Accelerator.TCG]
    assert seen.accelerator is Accelerator.KVM
    assert set(tried) == {"new", "old"}
    tried.clear()
    assert surveyed(tmp_path, monkeypatch, *programs)[1] == seen
    assert tried == []
    kept = [json.loads(path.read_text()) for path in (tmp_path / "stack").glob("kvm-*.json")]
    assert sorted(verdict["usable"] for verdict in kept) == [False, True]


def test_a_bundle_of_another_key_is_refused_with_what_it_needs_and_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "KVM", tmp_path / "kvm")
    means, seen = surveyed(
        tmp_path, monkeypatch, program(tmp_path, "a", "10.0"), program(tmp_path, "b", "9.2")
    )
    assert means_of(seen.restore_keys[1], means) is means[1]
    needed = RestoreKey("8.2", "pc-q35-8.2", Accelerator.TCG, "Westmere-v1")
    with pytest.raises(EnvironmentFault) as refused:
        means_of(needed, means)
    assert refused.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE
    assert refused.value.evidence == {
        "reason": "key_not_served",
        "needed": str(needed),
        "here": [str(key) for key in seen.restore_keys],
    }


def test_a_program_that_was_replaced_under_its_name_runs_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a package's upgrade while the worker goes on: the key that it goes by would be a lie."""
    monkeypatch.setattr(probe, "KVM", tmp_path / "kvm")
    named = program(tmp_path, "qemu", "10.0")
    (means,), _ = surveyed(tmp_path, monkeypatch, named)
    same_build(means)
    program(tmp_path, "newer", "10.1")
    (tmp_path / "newer").rename(named)
    with pytest.raises(EnvironmentFault, match=r"was QEMU 10\.0 when this worker began") as refused:
        same_build(means)
    assert refused.value.kind is FailureKind.RESTORE_FAILED
    (again,), _ = surveyed(tmp_path, monkeypatch, named)
    same_build(again)
    assert again.hypervisor.key.qemu_build == "10.1"
    Path(named).unlink()
    with pytest.raises(EnvironmentFault):
        same_build(again)
