"""Rules about pages: what they lead to is there, files and headings alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.source import ROOT, hidden

FOLDERS = ("bench", "demo", "docs", "guest", "sdk", "terraform")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _pages() -> list[Path]:
    found = [
        *ROOT.glob("*.md"),
        *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md")),
    ]
    return [page for page in found if not hidden(page.relative_to(ROOT))]


def _links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Each link into this repository: as it is written, the file that it means, the heading in it if one is named."""
    for link in LINK.findall(_text(page)):
        name, _, heading = link.partition("#")
        if "://" not in link:
            yield link, (page.parent / name).resolve() if name else page, heading


@cache
def _text(page: Path) -> str:
    return FENCED.sub("", page.read_text())


@cache
def _anchors(page: Path) -> frozenset[str]:
    """What a heading is called in an address: lower case, a dash for each space, nothing but letters and digits."""
    plain = (re.sub(r"[^\w\- ]", "", text.lower()) for text in HEADING.findall(_text(page)))
    return frozenset(text.strip().replace(" ", "-") for text in plain)


def test_no_link_leads_nowhere() -> None:
    links = [(page, *link) for page in _pages() for link in _links(page)]
    assert len(links) > 100
    dead = [
        f"{page.relative_to(ROOT)}: {said}"
        for page, said, target, heading in links
        if not target.exists() or (heading and heading not in _anchors(target))
    ]
    assert dead == []


def test_every_page_is_led_to() -> None:
    """From another page: what nothing leads to is read by nobody."""
    led_to = {target for page in _pages() for _, target, _ in _links(page) if target != page}
    shown = {page for page in _pages() if page.is_relative_to(ROOT / "docs")}
    decisions = ROOT / "docs" / "decisions"
    lost = {page for page in shown - led_to if page.parent != decisions}
    assert lost == set()
    assert decisions in led_to
