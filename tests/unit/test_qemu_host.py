"""What is believed of a host: its machine types, its accelerator, its control groups."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.domain.machine import Accelerator, Shape
from infra.qemu import fingerprint, limits, probe
from infra.qemu.probe import Trial, Verdict, boots, kvm_verdict
from infra.qemu.programs import best_machine_type

LISTING = """Supported machines are:
pc-i440fx-10.0       Standard PC (i440FX + PIIX, 1996) (default)
pc-q35-9.2           Standard PC (Q35 + ICH9, 2009)
q35                  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-10.0)
pc-q35-10.0          Standard PC (Q35 + ICH9, 2009)
"""


def test_the_newest_version_is_taken_by_number() -> None:
    assert best_machine_type(LISTING) == "pc-q35-10.0"


def test_an_unversioned_machine_is_none() -> None:
    assert best_machine_type("q35   Standard PC\nmicrovm  microvm\n") is None


def trial(tmp_path: Path, script: str) -> Trial:
    """A hypervisor that does what the script says."""
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Trial(str(program), "pc-q35-10.0", tmp_path / "kernel", tmp_path / "initramfs")


BOOTS = "echo '[    0.5] Run /init as init process'; exec sleep 1000"
REFUSES = "echo 'qemu-system-x86_64: no such feature' >&2; exit 1"


def test_a_first_process_is_proof(tmp_path: Path) -> None:
    assert boots(trial(tmp_path, BOOTS), Accelerator.KVM, "EPYC-v4", 30) is None


def test_what_was_seen_instead_is_told(tmp_path: Path) -> None:
    refused = boots(trial(tmp_path, REFUSES), Accelerator.KVM, "EPYC-v4", 30)
    assert refused == "ended: no such feature"


def test_a_guest_that_hangs_is_no_proof(tmp_path: Path) -> None:
    hangs = trial(tmp_path, "echo 'Booting'; exec sleep 1000")
    refused = boots(hangs, Accelerator.KVM, "EPYC-v4", 0.3)
    assert refused is not None
    assert refused.startswith("silent after")


def test_a_device_node_alone_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "kvm"
    node.touch()
    monkeypatch.setattr(probe, "KVM", node)
    verdict = kvm_verdict(trial(tmp_path, REFUSES), tmp_path / "cache", "boot 1")
    assert not verdict.usable
    assert "no such feature" in verdict.reason


def test_the_richest_model_that_boots_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "kvm"
    node.touch()
    monkeypatch.setattr(probe, "KVM", node)
    script = f'case "$*" in *EPYC-Rome-v4,enforce*) {BOOTS};; *) {REFUSES};; esac'
    verdict = kvm_verdict(trial(tmp_path, script), tmp_path / "cache", "boot 1")
    assert (verdict.usable, verdict.cpu_model) == (True, "EPYC-Rome-v4")


def test_a_verdict_holds_for_one_boot_and_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, cache = tmp_path / "kvm", tmp_path / "cache"
    monkeypatch.setattr(probe, "KVM", node)
    absent = kvm_verdict(trial(tmp_path, BOOTS), cache, "boot 1")
    assert absent == Verdict(False, "there is no /dev/kvm")
    node.touch()
    assert kvm_verdict(trial(tmp_path, BOOTS), cache, "boot 1") == absent
    assert kvm_verdict(trial(tmp_path, BOOTS), cache, "boot 2").usable


@pytest.mark.parametrize("kept", ["", "{", "[]", '{"asked_for": "boot 1"}'])
def test_an_unreadable_verdict_is_asked_for_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    monkeypatch.setattr(probe, "KVM", tmp_path / "kvm")
    (tmp_path / "cache").write_text(kept)
    verdict = kvm_verdict(trial(tmp_path, BOOTS), tmp_path / "cache", "boot 1")
    assert verdict.reason == "there is no /dev/kvm"


def test_a_plain_folder_is_no_control_group(tmp_path: Path) -> None:
    parent = tmp_path / "promigence"
    assert not limits.available(parent)
    assert not parent.exists()
    with ExitStack() as stack:
        assert limits.enter(stack, "m", Shape(1, 128, 1), parent) is None


def test_groups_without_the_memory_controller_do_not_serve(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io\n")
    assert not limits.available(tmp_path / "promigence")


def test_a_machine_s_group_has_room_for_the_guest_and_for_qemu(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    parent = tmp_path / "promigence"
    group = parent / "m"
    group.mkdir(parents=True)
    (group / "cgroup.procs").touch()
    with ExitStack() as stack:
        fd = limits.enter(stack, "m", Shape(1, 128, 1), parent)
        assert fd is not None
        assert os.readlink(f"/proc/self/fd/{fd}") == str(group / "cgroup.procs")  # noqa: PTH115
    assert (parent / "cgroup.subtree_control").read_text() == "+memory"
    limit = int((group / "memory.max").read_text())
    assert limit == (128 + limits.OVERHEAD_MIB) * 1024 * 1024
    assert (group / "memory.oom.group").read_text() == "1"


@pytest.mark.parametrize(
    ("file", "text", "guests_mib"),
    [
        ("memory.max", f"{9 << 30}\n", 7 << 10),
        ("memory/memory.limit_in_bytes", f"{9 << 30}\n", 7 << 10),
        ("memory.max", f"{1 << 29}\n", 0),
        ("memory.max", "max\n", 28 << 10),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", 28 << 10),
    ],
)
def test_a_container_holds_no_more_than_its_limit(
    file: str, text: str, guests_mib: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {"SC_PHYS_PAGES": 33 << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(fingerprint, "_CGROUPS", tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)

    assert fingerprint._memory_for_guests_mib() == guests_mib
