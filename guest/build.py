"""Build what a machine boots from: `vmlinuz`, `initramfs.cpio` (PID 1 and the modules it loads) and `tools.img`.

    python -m guest.build --unpacked DIR --out DIR [--dropbear PATH] [--cc PROGRAM]

`--unpacked` holds an unpacked kernel package (`boot/`, `lib/modules/`, `release` with the kernel's name) and busybox.
A hash of all that goes in is kept beside the products: an unchanged build does nothing. Nothing here needs root.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
INIT_SOURCES = (
    "init.c",
    "loop.c",
    "text.c",
    "port.c",
    "boot.c",
    "cgroup.c",
    "barrier.c",
    "capture.c",
    "command.c",
    "door.c",
    "journal.c",
    "result.c",
    "spawn.c",
    "ssh.c",
)
C_FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-Os",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-result",
)
# In this order, each after what it depends on. What a kernel has built in has no module file, and is left out.
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "ext4", "vmgenid", "pvpanic-pci")
MUST_HAVE = ("virtio_pci", "virtio_blk", "virtio_console", "ext4")
TOOLS_MIB = 16
PRODUCTS = ("vmlinuz", "initramfs.cpio", "tools.img")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the parts come from. `modules` is the folder of one kernel release."""

    kernel: Path
    modules: Path
    busybox: Path
    dropbear: Path
    cc: str


def build(sources: Sources, out: Path) -> bool:
    """Make the products in `out`, all or none of them; False if they were there already, made from the same parts."""
    stamp = out / "content"
    content = _content(sources)
    if stamp.is_file() and stamp.read_text() == content:
        return False
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        draft = Path(scratch)
        shutil.copyfile(sources.kernel, draft / "vmlinuz")
        (draft / "initramfs.cpio").write_bytes(_initramfs(sources, draft))
        _tools_disk(sources, draft)
        stamp.unlink(missing_ok=True)
        for name in PRODUCTS:
            (draft / name).replace(out / name)
    stamp.write_text(content)
    return True


def _content(sources: Sources) -> str:
    digest = hashlib.sha256(repr((sources.cc, C_FLAGS, MODULES)).encode())
    for path in (*sorted(HERE.glob("*.[ch]")), Path(__file__), *_binaries(sources)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _binaries(sources: Sources) -> tuple[Path, ...]:
    return sources.kernel, sources.busybox, sources.dropbear


def _compile(cc: str, target: Path, *names: str) -> None:
    files = [str(HERE / name) for name in names]
    _run(cc, *C_FLAGS, "-static", "-s", "-o", str(target), *files)


# --- the initramfs: a cpio archive in the kernel's "newc" form ---


def _initramfs(sources: Sources, scratch: Path) -> bytes:
    init = scratch / "init"
    _compile(sources.cc, init, *INIT_SOURCES)
    modules = _modules(sources.modules)
    names = [name for name, _ in modules]
    entries = [
        _entry("dev", 0o040755),
        _entry("dev/console", 0o020600, device=(5, 1)),
        _entry("modules", 0o040755),
        _entry("modules/order", 0o100644, "\n".join(names).encode()),
        *(_entry(f"modules/{name}", 0o100644, data) for name, data in modules),
        _entry("init", 0o100755, init.read_bytes()),
        _entry("TRAILER!!!", 0),
    ]
    return b"".join(entries)


def _entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    encoded = name.encode() + b"\0"
    inode = int.from_bytes(hashlib.sha256(encoded).digest()[:3], "big")
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _modules(folder: Path) -> list[tuple[str, bytes]]:
    """File name and contents of each module, after those that it needs. Raises SystemExit if one is missing."""
    files = {_plain(path): path for path in folder.rglob("*.ko*")}
    built_in = {_plain(Path(line)) for line in _lines(folder / "modules.builtin")}
    for name in MUST_HAVE:
        if _canonical(name) not in files and _canonical(name) not in built_in:
            raise SystemExit(f"this kernel has no {name}, built in or as a module under {folder}")
    ordered: dict[str, bytes] = {}
    for name in MODULES:
        _add_module(_canonical(name), files, ordered)
    return [(f"{name}.ko", data) for name, data in ordered.items()]


def _add_module(name: str, files: dict[str, Path], ordered: dict[str, bytes]) -> None:
    if name in ordered or name not in files:
        return
    data = _unpacked(files[name])
    depends = re.search(rb"\0depends=([^\0]*)\0", data)
    for needed in depends.group(1).decode().split(",") if depends else ():
        _add_module(_canonical(needed), files, ordered)
    ordered[name] = data


def _plain(path: Path) -> str:
    return _canonical(path.name.partition(".ko")[0])


def _canonical(name: str) -> str:
    return name.strip().replace("-", "_")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


def _unpacked(path: Path) -> bytes:
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout
    return path.read_bytes()


# --- the tools disk ---


def _tools_disk(sources: Sources, scratch: Path) -> None:
    tree = scratch / "tools"
    for folder in ("bin", "sbin", "dev", "proc", "run", "etc"):
        (tree / folder).mkdir(parents=True)
    _compile(sources.cc, tree / "bin/shell", "shell.c", "text.c")
    _compile(sources.cc, tree / "bin/probe", "probe.c", "text.c")
    shutil.copy(sources.busybox, tree / "bin/busybox")
    shutil.copy(sources.dropbear, tree / "sbin/dropbear")
    for library in _libraries(sources.dropbear):
        target = tree / str(library).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    # No password: the only way to this server is the host's own socket of this one machine.
    (tree / "etc/passwd").write_text("root::0:0:root:/:/bin/shell\n")
    (tree / "etc/shells").write_text("/bin/shell\n")
    (tree / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\n")
    image = scratch / "tools.img"
    features = "^has_journal,^resize_inode,^metadata_csum"
    size = ("-b", "1024", "-N", "128", "-m", "0")
    _run(
        "mke2fs",
        "-q",
        "-t",
        "ext4",
        "-O",
        features,
        *size,
        "-d",
        str(tree),
        str(image),
        f"{TOOLS_MIB}M",
    )


def _libraries(program: Path) -> Iterator[Path]:
    """The shared libraries that a program loads, its loader included, by the paths under which it looks for them."""
    for line in _run("ldd", str(program)).splitlines():
        found = re.search(r"(/\S+) \(0x", line)
        if found:
            yield Path(found.group(1))


def _run(*argv: str) -> str:
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, timeout=300)
    if done.returncode:
        raise SystemExit(f"{argv[0]} failed ({done.returncode}): {done.stderr.strip()[-2000:]}")
    return done.stdout


def _sources(arguments: argparse.Namespace) -> Sources:
    unpacked: Path = arguments.unpacked
    release = (unpacked / "release").read_text().strip()
    busybox = next(
        path for path in (unpacked / "bin/busybox", unpacked / "usr/bin/busybox") if path.is_file()
    )
    return Sources(
        kernel=unpacked / f"boot/vmlinuz-{release}",
        modules=unpacked / f"lib/modules/{release}",
        busybox=busybox,
        dropbear=arguments.dropbear,
        cc=arguments.cc,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of this module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--unpacked", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dropbear", type=Path, default=Path("/usr/sbin/dropbear"))
    parser.add_argument("--cc", default="musl-gcc")
    arguments = parser.parse_args(argv)
    made = build(_sources(arguments), arguments.out)
    print(f"{'made' if made else 'unchanged'}: {', '.join(PRODUCTS)} in {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
