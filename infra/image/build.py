"""Builds the base images that are not there yet: `python -m infra.image.build NAME... --images DIR --busybox FILE`.

Needs root (ownership and mounts of a Debian tree). Part of set-up; the server only reads what is built here.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import uuid
from dataclasses import asdict
from pathlib import Path

from infra.image.disk import make_root_disk
from infra.image.recipes import RECIPES, Recipe

DEBIAN_TIMEOUT_S = 1800
# What nobody reads in a machine: it would be copied, checked and kept in memory with each snapshot.
UNREAD = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
KEPT = ("/usr/share/doc/*/copyright",)

DEBIAN_FILES = {
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/machine-id": "",
    # The machine is the environment: `python -m pip install` may write to its only Python, as root.
    "etc/pip.conf": "[global]\nbreak-system-packages = true\nroot-user-action = ignore\n"
    "disable-pip-version-check = true\n",
}
# Left by the build; each machine is given its own at the barrier.
OF_THE_BUILDER = ("etc/resolv.conf", "etc/hostname")

BUSYBOX_FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "var/tmp")
BUSYBOX_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/machine-id": "",
}


def main(argv: list[str] | None = None) -> int:
    """Build each named image unless its content address is there already; exit status 1 with the tool's output."""
    options = _options(argv)
    for name in options.names:
        recipe = RECIPES[name]
        try:
            path = build(recipe, options.images, options.busybox, options.sources, options.apt_conf)
        except subprocess.CalledProcessError as error:
            print(
                f"{recipe.name}: {error.cmd[0]} failed\n{error.stdout}{error.stderr}",
                file=sys.stderr,
            )
            return 1
        print(f"{recipe.name}: {path}")
    return 0


def build(
    recipe: Recipe, images: Path, busybox: Path, sources: tuple[Path, ...], apt_conf: Path | None
) -> Path:
    """The image's root disk under its content address, built whole or not at all.

    `sources` are apt's files for the suite; without any, the suite's default mirror serves. `apt_conf` holds while
    the image is built and is not left in it.
    """
    home = images / recipe.name / recipe.address
    if (home / "root.img").is_file():
        return home / "root.img"
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=images, prefix=".part-") as scratch:
        tree, made = Path(scratch, "tree"), Path(scratch, "made")
        made.mkdir(mode=0o755)
        if recipe.suite is None:
            grow_busybox(tree, busybox)
        else:
            grow_debian(tree, recipe, sources, apt_conf)
        identity = uuid.uuid5(uuid.NAMESPACE_OID, recipe.address)
        make_root_disk(tree, made / "root.img", recipe.headroom_mib, identity)
        (made / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2) + "\n")
        made.rename(home)
    return home / "root.img"


def grow_debian(
    tree: Path, recipe: Recipe, sources: tuple[Path, ...], apt_conf: Path | None
) -> None:
    """A minimal Debian with the recipe's packages; raises CalledProcessError."""
    argv = mmdebstrap_argv(tree, recipe, sources, apt_conf)
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=DEBIAN_TIMEOUT_S)
    for name in OF_THE_BUILDER:
        (tree / name).unlink(missing_ok=True)
    _write(tree, DEBIAN_FILES)


def mmdebstrap_argv(
    tree: Path, recipe: Recipe, sources: tuple[Path, ...], apt_conf: Path | None
) -> list[str]:
    """The command that makes the tree."""
    assert recipe.suite is not None
    excluded = [f"--dpkgopt=path-exclude={path}" for path in UNREAD]
    included = [f"--dpkgopt=path-include={path}" for path in KEPT]
    while_built = "etc/apt/apt.conf.d/01outside"
    hooks = [
        f'--setup-hook=mkdir -p "$1/etc/apt/apt.conf.d" && cp {apt_conf} "$1/{while_built}"',
        f'--customize-hook=rm "$1/{while_built}"',
    ]
    return [
        *("mmdebstrap", "--variant=minbase", "--format=directory", "--quiet"),
        *excluded,
        *included,
        f"--include={','.join(recipe.packages)}",
        *(hooks if apt_conf else []),
        *(recipe.suite, str(tree)),
        *(str(path) for path in sources),
    ]


def grow_busybox(tree: Path, busybox: Path) -> None:
    """One static binary under every name that it answers to; raises CalledProcessError when it does not run."""
    for folder in BUSYBOX_FOLDERS:
        (tree / folder).mkdir(parents=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "var/tmp").chmod(0o1777)
    shutil.copy(busybox, tree / "bin/busybox")
    applets = subprocess.run(
        [str(busybox), "--list"], check=True, capture_output=True, text=True, timeout=10
    )
    for applet in applets.stdout.split():
        if applet != "busybox":
            (tree / "bin" / applet).symlink_to("busybox")
    # Scripts name it in their first line.
    (tree / "usr/bin/env").symlink_to("/bin/busybox")
    _write(tree, BUSYBOX_FILES)


def _write(tree: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tree / name).write_text(text)
        (tree / name).chmod(0o644)


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="infra.image.build", description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(RECIPES))
    parser.add_argument("--images", type=Path, required=True, help="folder of the images")
    parser.add_argument("--busybox", type=Path, required=True, help="a static busybox")
    parser.add_argument("--sources", type=Path, action="append", default=[], help="a file of apt")
    parser.add_argument("--apt-conf", type=Path, help="apt's options while an image is built")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
