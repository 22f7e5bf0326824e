"""The hypervisor's command line is data: what it must and must not have, without a hypervisor."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from app.domain.machine import Accelerator, RestoreKey, Shape
from infra.qemu.argv import Descriptors, Hypervisor, fork_argv, template_argv

KEY = RestoreKey("10.0.2", "pc-q35-10.0", Accelerator.TCG, "Westmere-v1")
QEMU = Hypervisor("/usr/bin/qemu-system-x86_64", KEY)
SHAPE = Shape(vcpus=2, memory_mib=512, disk_gib=4)
TEMPLATE = Descriptors(
    console=10,
    monitor=11,
    control=12,
    ssh=13,
    memory=14,
    state=15,
    root=16,
    tools=17,
    kernel=18,
    initramfs=19,
)
FORK = replace(TEMPLATE, overlay=20, kernel=None, initramfs=None)


def options(argv: tuple[str, ...], name: str) -> list[str]:
    """The values of an option that may be given several times."""
    return [value for option, value in pairwise(argv) if option == name]


TEMPLATE_ARGV = template_argv(QEMU, "t", SHAPE, TEMPLATE)
FORK_ARGV = fork_argv(QEMU, "f", SHAPE, FORK)
BOTH = pytest.mark.parametrize("argv", [TEMPLATE_ARGV, FORK_ARGV], ids=["template", "fork"])


@BOTH
@pytest.mark.parametrize("option", ["-device", "-machine", "-cpu", "-smp", "-m", "-serial"])
def test_a_fork_has_the_template_s_devices(argv: tuple[str, ...], option: str) -> None:
    assert options(argv, option) == options(TEMPLATE_ARGV, option)


@BOTH
def test_there_is_no_network_card(argv: tuple[str, ...]) -> None:
    assert "-nodefaults" in argv
    assert not options(argv, "-netdev")
    assert not options(argv, "-nic")
    assert not [device for device in options(argv, "-device") if "net" in device]


@BOTH
def test_the_strict_sandbox_is_on(argv: tuple[str, ...]) -> None:
    (sandbox,) = options(argv, "-sandbox")
    assert sandbox.split(",") == [
        "on",
        "obsolete=deny",
        "elevateprivileges=deny",
        "spawn=deny",
        "resourcecontrol=deny",
    ]


@BOTH
def test_the_machine_is_versioned_and_the_cpu_is_named_and_enforced(argv: tuple[str, ...]) -> None:
    (machine,) = options(argv, "-machine")
    assert machine.startswith("pc-q35-10.0,")
    assert options(argv, "-cpu") == ["Westmere-v1,enforce"]


@BOTH
def test_generations_and_panics_are_seen(argv: tuple[str, ...]) -> None:
    devices = options(argv, "-device")
    assert "vmgenid,guid=auto" in devices
    assert "pvpanic-pci" in devices


@BOTH
def test_what_a_guest_does_to_itself_pauses_it_until_the_event_is_read(
    argv: tuple[str, ...],
) -> None:
    assert options(argv, "-action") == ["reboot=shutdown,shutdown=pause,panic=pause"]


def test_the_template_writes_its_memory_file_and_a_fork_maps_it_read_only() -> None:
    (template,) = options(TEMPLATE_ARGV, "-object")
    (fork,) = options(FORK_ARGV, "-object")
    assert template.endswith("size=512M,mem-path=/proc/self/fd/14,share=on")
    assert fork.endswith("size=512M,mem-path=/proc/self/fd/14,share=off,readonly=on,rom=off")


def test_only_the_template_boots_a_kernel() -> None:
    assert options(TEMPLATE_ARGV, "-kernel") == ["/proc/self/fd/18"]
    assert options(TEMPLATE_ARGV, "-initrd") == ["/proc/self/fd/19"]
    assert not {"-kernel", "-initrd", "-append"} & set(FORK_ARGV)
    assert options(FORK_ARGV, "-incoming") == ["defer"]


def test_an_emulated_guest_does_not_trust_the_time_stamp_counter() -> None:
    (emulated,) = options(TEMPLATE_ARGV, "-append")
    assert "tsc=unstable" in emulated.split()
    kvm = replace(QEMU, key=replace(KEY, accelerator=Accelerator.KVM))
    (real,) = options(template_argv(kvm, "t", SHAPE, TEMPLATE), "-append")
    assert "tsc=unstable" not in real.split()
    assert "console=ttyS0" in real.split()


def test_a_fork_writes_to_its_overlay_alone() -> None:
    nodes = {node_name(blockdev): blockdev for blockdev in options(FORK_ARGV, "-blockdev")}
    assert set(nodes) == {"root", "frozen", "tools"}
    assert "file.filename=/dev/fdset/20" in nodes["root"]
    assert "backing=frozen" in nodes["root"]
    assert "read-only" not in nodes["root"]
    for name, number in (("frozen", 16), ("tools", 17)):
        assert f"file.filename=/dev/fdset/{number}" in nodes[name]
        assert "read-only=on" in nodes[name]
        assert "file.read-only=on" in nodes[name]


@BOTH
def test_every_inherited_file_is_announced_under_its_own_number(argv: tuple[str, ...]) -> None:
    announced = options(argv, "-add-fd")
    used = {word.split("/dev/fdset/")[1].split(",")[0] for word in argv if "/dev/fdset/" in word}
    assert used <= {option.split("set=")[1] for option in announced}
    assert all(option == "fd={0},set={0}".format(option.split("set=")[1]) for option in announced)


@BOTH
def test_no_path_of_ours_is_opened_by_name(argv: tuple[str, ...]) -> None:
    paths = [word for word in argv[1:] if "=/" in word or word.startswith("/")]
    assert paths
    assert all("/dev/fdset/" in path or "/proc/self/fd/" in path for path in paths)


def test_translated_code_is_bounded_by_emulation_and_kvm_gets_an_open_device() -> None:
    assert options(FORK_ARGV, "-accel") == ["tcg,tb-size=32"]
    kvm = replace(QEMU, key=replace(KEY, accelerator=Accelerator.KVM))
    argv = fork_argv(kvm, "f", SHAPE, replace(FORK, accelerator=21))
    assert options(argv, "-accel") == ["kvm,device=/dev/fdset/21"]
    assert "fd=21,set=21" in options(argv, "-add-fd")


def test_all_numbers_are_passed_on() -> None:
    assert sorted(FORK.numbers()) == [10, 11, 12, 13, 14, 15, 16, 17, 20]
    assert sorted(TEMPLATE.numbers()) == list(range(10, 20))


def node_name(blockdev: str) -> str:
    return dict(part.split("=", 1) for part in blockdev.split(","))["node-name"]
