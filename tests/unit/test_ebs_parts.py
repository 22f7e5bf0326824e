"""The parts of EBS bundles that need no cloud: devices by volume id, copies with holes, waits with an end, locks."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path

import pytest

from app.errors import Unavailable
from infra.ebs import copying, devices, disks
from infra.ebs.locks import Locks
from infra.ebs.waiting import AWAY_S, patiently, until
from infra.fakes.clock import ManualClock

VOLUME = "vol-0123456789abcdef0"
LINK = "nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
MIB = 1 << 20


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of devices: files whose names begin with `nvme` pass for block devices."""
    folder = tmp_path / "dev"
    folder.mkdir()
    monkeypatch.setattr(
        devices, "is_block_device", lambda path: path.is_file() and path.name.startswith("nvme")
    )
    return folder


def linked(tmp_path: Path, to: Path, name: str = LINK) -> Path:
    links = tmp_path / "by-id"
    links.mkdir(exist_ok=True)
    (links / name).symlink_to(to)
    return links


def found(tmp_path: Path, dev: Path) -> Path | None:
    return devices.find(VOLUME, tmp_path / "by-id", tmp_path / "block", dev)


def with_serial(tmp_path: Path, name: str, serial: str) -> None:
    controller = tmp_path / "block" / name / "device"
    controller.mkdir(parents=True)
    (controller / "serial").write_text(f"{serial}   \n")


@pytest.mark.parametrize("suffix", ["", "_1", "-ns-1"])
def test_a_device_is_found_by_the_link_that_udev_makes(
    tmp_path: Path, dev: Path, suffix: str
) -> None:
    assert found(tmp_path, dev) is None
    (dev / "nvme1n1").touch()
    linked(tmp_path, dev / "nvme1n1", LINK + suffix)
    assert found(tmp_path, dev) == dev / "nvme1n1"


def test_without_links_it_is_found_by_its_serial_number(tmp_path: Path, dev: Path) -> None:
    for name, serial in (("nvme0n1", "vol0aaa"), ("nvme3n1", "vol0123456789abcdef0")):
        (dev / name).touch()
        with_serial(tmp_path, name, serial)
    assert found(tmp_path, dev) == dev / "nvme3n1"


def test_of_a_controller_whose_node_is_not_there_yet_there_is_no_device(
    tmp_path: Path, dev: Path
) -> None:
    with_serial(tmp_path, "nvme3n1", "vol0123456789abcdef0")
    assert found(tmp_path, dev) is None
    (dev / "nvme3n1").touch()
    assert found(tmp_path, dev) == dev / "nvme3n1"


def test_a_link_that_leads_elsewhere_is_not_followed(tmp_path: Path, dev: Path) -> None:
    outside = tmp_path / "nvme-secret"
    outside.touch()
    (dev / "plain").touch()
    links = linked(tmp_path, outside)
    for target in (dev / ".." / "nvme-secret", dev / "plain", dev / "nowhere"):
        assert found(tmp_path, dev) is None
        (links / LINK).unlink()
        (links / LINK).symlink_to(target)
    assert found(tmp_path, dev) is None


def test_a_partition_is_not_the_volume(tmp_path: Path, dev: Path) -> None:
    (dev / "nvme1n1p1").touch()
    linked(tmp_path, dev / "nvme1n1p1", f"{LINK}-part1")
    assert found(tmp_path, dev) is None


def test_a_plain_file_is_no_block_device(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not devices.is_block_device(tmp_path / "file")
    assert not devices.is_block_device(tmp_path / "none")


def test_a_copy_keeps_holes_and_modes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir(mode=0o755)
    target.mkdir(mode=0o700)
    with (source / "memory.img").open("wb") as file:
        file.write(b"first")
        file.seek(50 * MIB)
        file.write(os.urandom(MIB))
        file.truncate(100 * MIB)
    (source / "memory.img").chmod(0o444)
    (source / "empty").touch()
    copying.copy(source, target)
    copied = target / "memory.img"
    assert copied.read_bytes() == (source / "memory.img").read_bytes()
    assert (target / "empty").read_bytes() == b""
    assert copied.stat().st_blocks * 512 < 2 * MIB
    assert stat.S_IMODE(copied.stat().st_mode) == 0o444
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    with pytest.raises(FileExistsError):
        copying.copy(source, target)


@pytest.mark.parametrize(("data_mib", "gib"), [(0, 1), (900, 1), (950, 2), (3000, 4)])
def test_a_volume_is_as_large_as_what_is_written_not_as_what_it_seems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_mib: int, gib: int
) -> None:
    with (tmp_path / "memory.img").open("wb") as file:
        file.truncate(64 << 30)
    assert copying.volume_gib(tmp_path) == 1
    monkeypatch.setattr(copying, "_extents", lambda *_: iter([(0, data_mib * MIB)]))
    assert copying.volume_gib(tmp_path) == gib


def test_a_filesystem_is_made_for_one_write_and_mounted_so_that_nothing_on_it_acts() -> None:
    device, point = Path("/dev/nvme1n1"), Path("/b/stored/one")
    argv = disks.mount_argv(device, point, writable=False)
    assert argv[:4] == ["mount", "-t", "ext4", "-o"]
    assert argv[4].split(",") == ["ro", "noload", "nosuid", "nodev", "noexec", "noatime"]
    assert argv[5:] == ["/dev/nvme1n1", "/b/stored/one"]
    assert "rw" in disks.mount_argv(device, point, writable=True)[4].split(",")


def test_a_host_that_can_mount_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="as root") as found:
        disks.Ext4Disks(tmp_path)
    assert found.value.code == "not_root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="mke2fs, mount, umount") as found:
        disks.Ext4Disks(tmp_path)
    assert found.value.code == "not_set_up"


# Waits


def test_a_call_is_made_again_until_the_cloud_is_back_and_no_longer_than_that() -> None:
    clock, asked = ManualClock(), []

    def away(times: int) -> str:
        asked.append(clock.boot_ns())
        if len(asked) <= times:
            raise Unavailable("cloud_away", "not now")
        return "answer"

    assert patiently(clock, lambda: away(3)) == "answer"
    pauses_ns = [later - before for before, later in itertools.pairwise(asked)]
    assert pauses_ns == [250_000_000, 500_000_000, 1_000_000_000]
    asked.clear()
    with pytest.raises(Unavailable):
        patiently(clock, lambda: away(10**6))
    assert AWAY_S <= (asked[-1] - asked[0]) / 1e9 <= AWAY_S + 5


def test_a_wait_looks_once_at_least_and_ends() -> None:
    clock, looks = ManualClock(), []

    def nothing() -> None:
        looks.append(clock.boot_ns())

    assert until(clock, nothing, 0.0) is None
    assert len(looks) == 1
    assert until(clock, nothing, 100.0) is None
    assert 100 <= (looks[-1] - looks[1]) / 1e9 <= 105
    assert until(clock, lambda: 7 if clock.boot_ns() > looks[-1] + 10**9 else None, 100.0) == 7


def test_a_name_is_held_by_one_at_a_time_and_another_name_is_free(tmp_path: Path) -> None:
    clock = ManualClock()
    locks, others = Locks(tmp_path / "lock", clock), Locks(tmp_path / "lock", clock)
    with locks.held("one", 0.0) as first, others.held("two", 0.0) as second:
        assert first
        assert second
        before = clock.boot_ns()
        with others.held("one", 2.0) as third:
            assert not third
        assert clock.boot_ns() - before == 2_000_000_000
    with others.held("one", 0.0) as fourth:
        assert fourth
