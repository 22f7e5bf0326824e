"""Sources entries of apt, made from this machine's own by replacing the suite: mirror, keys and options stay.

    sources.py backports CODENAME     gives this machine its distribution's backports, where they are not configured
    sources.py debian SUITE FOLDER    writes entries for a Debian suite, for a base image

Runs before there is a virtual environment: standard library only.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

APT = Path("/etc/apt")
ONE_LINE = re.compile(
    r"deb\s+(?P<options>\[[^]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)"
)
SUITES = re.compile(r"^Suites:.*(?:\n[ \t].*)*", re.MULTILINE | re.IGNORECASE)
FIELD = re.compile(r"^(?P<name>[A-Za-z-]+):(?P<value>.*(?:\n[ \t].*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One source of packages, as apt's files say it; `text` is its own, in its own format."""

    text: str
    suffix: str
    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]

    def with_suite(self, suite: str) -> Entry:
        """The same source, for one other suite."""
        if self.suffix == ".list":
            match = ONE_LINE.fullmatch(self.text)
            assert match is not None
            text = self.text[: match.start("suite")] + suite + self.text[match.end("suite") :]
        else:
            text = SUITES.sub(f"Suites: {suite}", self.text)
        return replace(self, text=text, suites=(suite,))


def main(verb: str, suite: str, folder: str = "") -> int:
    """Exit status 0 when the entries are there afterwards."""
    entries = [entry for path in _files(APT) for entry in parse(path.read_text(), path.suffix)]
    if verb == "backports":
        return add_backports(entries, suite, APT / "sources.list.d")
    write_debian(entries, _codename(), suite, Path(folder))
    return 0


def add_backports(entries: list[Entry], codename: str, folder: Path) -> int:
    """Write one more entry, unless there is one; exit status 1 when there is nothing to make it from."""
    suite = f"{codename}-backports"
    if any(suite in entry.suites for entry in entries):
        return 0
    model = archive(entries, codename)
    if model is None:
        print(f"no sources entry for {codename} main to make {suite} from", file=sys.stderr)
        return 1
    text = model.with_suite(suite).text
    path = folder / f"promigence-backports{model.suffix}"
    path.write_text(f"# Made by Promigence's set-up: QEMU and a guest kernel.\n{text}\n")
    return 0


def write_debian(entries: list[Entry], codename: str | None, suite: str, folder: Path) -> None:
    """The suite with its updates and security fixes, a file each; none when this machine is no Debian."""
    if codename is None:
        return
    security = next((e for e in entries if f"{codename}-security" in e.suites), None)
    of_archive = archive(entries, codename)
    wanted = (
        (of_archive, suite),
        (of_archive, f"{suite}-updates"),
        (security, f"{suite}-security"),
    )
    for model, name in wanted:
        if model is not None:
            entry = model.with_suite(name)
            (folder / f"{name}{entry.suffix}").write_text(entry.text + "\n")


def parse(text: str, suffix: str) -> Iterator[Entry]:
    """The enabled binary sources of one file: `.list` (one line each) or `.sources` (deb822)."""
    if suffix == ".list":
        yield from (entry for line in text.splitlines() if (entry := _from_line(line.strip())))
    else:
        without_comments = re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE)
        stanzas = re.split(r"\n[ \t]*\n", without_comments)
        yield from (entry for stanza in stanzas if (entry := _from_stanza(stanza.strip())))


def archive(entries: list[Entry], codename: str) -> Entry | None:
    """The distribution's own archive: it serves updates from the same place, which other vendors' do not."""
    serving = [e for e in entries if codename in e.suites and "main" in e.components]
    updated = {uri for e in entries if f"{codename}-updates" in e.suites for uri in e.uris}
    return next((e for e in serving if updated & set(e.uris)), next(iter(serving), None))


def _files(apt: Path) -> Iterator[Path]:
    if (apt / "sources.list").is_file():
        yield apt / "sources.list"
    folder = apt / "sources.list.d"
    yield from sorted([*folder.glob("*.list"), *folder.glob("*.sources")])


def _from_line(line: str) -> Entry | None:
    match = ONE_LINE.fullmatch(line)
    if match is None:
        return None
    components = match["components"].partition("#")[0].split()
    return Entry(line, ".list", (match["uri"],), (match["suite"],), tuple(components))


def _from_stanza(stanza: str) -> Entry | None:
    fields = {m["name"].lower(): m["value"].split() for m in FIELD.finditer(stanza)}
    if "deb" not in fields.get("types", []) or fields.get("enabled", ["yes"]) == ["no"]:
        return None
    uris, suites, components = (tuple(fields.get(f, [])) for f in ("uris", "suites", "components"))
    return Entry(stanza, ".sources", uris, suites, components)


def _codename() -> str | None:
    release = platform.freedesktop_os_release()
    return release.get("VERSION_CODENAME") if release["ID"] == "debian" else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
