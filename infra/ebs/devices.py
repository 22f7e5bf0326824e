"""Where an attached volume is on this host. The device name that AWS was asked for is not the one that Nitro gives."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

DEV = Path("/dev")
BLOCKS = Path("/sys/block")
_LINK = "nvme-Amazon_Elastic_Block_Store_"
# linux/fs.h
_BLKGETSIZE64 = 0x80081272


def find(volume_id: str, links: Path, blocks: Path = BLOCKS, dev: Path = DEV) -> Path | None:
    """The block device of a volume: by udev's link in `links`, or by the serial number of an NVMe controller, which is
    the volume's id without its hyphen ("Map EBS volumes to NVMe device names"). None as long as there is none.

    A link that leads out of `dev`, or to what is no block device, is none.
    """
    serial = volume_id.replace("-", "")
    return next(
        (
            device
            for device in (*_by_link(serial, links), *_by_serial(serial, blocks, dev))
            if device.is_relative_to(dev) and is_block_device(device)
        ),
        None,
    )


def is_block_device(path: Path) -> bool:
    try:
        return stat.S_ISBLK(path.stat().st_mode)
    except OSError:
        return False


def size_bytes(device: Path) -> int:
    """As the kernel has it. Raises OSError."""
    fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        (size,) = struct.unpack("Q", fcntl.ioctl(fd, _BLKGETSIZE64, bytes(8)))
    finally:
        os.close(fd)
    return int(size)


def _by_link(serial: str, links: Path) -> Iterator[Path]:
    """udev makes a link for the device and, with `-part1` and the like behind it, for its partitions: not those."""
    for name in (f"{_LINK}{serial}", f"{_LINK}{serial}_1", f"{_LINK}{serial}-ns-1"):
        link = links / name
        if link.is_symlink() or link.exists():
            yield link.resolve()


def _by_serial(serial: str, blocks: Path, dev: Path) -> Iterator[Path]:
    for file in sorted(blocks.glob("nvme*/device/serial")):
        try:
            seen = file.read_text().strip()
        except OSError:
            continue  # detached meanwhile
        if seen == serial:
            yield dev / file.parts[-3]
