"""An audit that could not look is no clean one."""

from __future__ import annotations

from typing import Any

import pytest

from infra.setup.audit import CLEAN, UNKNOWN, VULNERABLE, judge

PINNED = [("Jinja2", "3.1.0"), ("typing_extensions", "4.0")]


def told(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(entries), "fixes": []}


def found(name: str, version: str, *ids: str) -> dict[str, Any]:
    return {"name": name, "version": version, "vulns": [{"id": each} for each in ids]}


SKIPPED = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI and could not be audited"}
FINE = found("typing-extensions", "4.0")


@pytest.mark.parametrize(
    ("report", "why", "code"),
    [
        (told(found("jinja2", "3.1.0"), FINE), "", CLEAN),
        (told(found("jinja2", "3.1.0", "CVE-1"), FINE), "", VULNERABLE),
        (told(found("jinja2", "3.1.0", "CVE-1")), "", VULNERABLE),
        (told(SKIPPED, FINE), "", UNKNOWN),
        (told(FINE), "", UNKNOWN),
        (told(found("jinja2", "2.0"), FINE), "", UNKNOWN),
        (told(), "", UNKNOWN),
        (None, "no answer", UNKNOWN),
        (told(found("jinja2", "3.1.0"), FINE), "it broke off", UNKNOWN),
    ],
)
def test_what_was_not_looked_up_is_told_by_the_exit_status(
    report: Any, why: str, code: int
) -> None:
    assert judge(report, why, PINNED).exit_code == code


def test_a_vulnerability_is_named_with_its_package() -> None:
    verdict = judge(told(found("jinja2", "3.1.0", "CVE-1", "GHSA-2"), FINE), "", PINNED)
    assert verdict.vulnerable == ("Jinja2 3.1.0: CVE-1, GHSA-2",)


def test_a_lock_with_nothing_in_it_is_not_clean() -> None:
    assert judge(told(), "", []).exit_code == UNKNOWN
