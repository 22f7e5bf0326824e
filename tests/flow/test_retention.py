"""What is kept for a time: the audit log as long as the operator says, what projects have sent for 30 days."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.audit import Entry, Sought
from app.flow import retention
from app.flow.retention import DAY_NS, forget
from tests.flow.stage import PROJECT, Stage

DAY_S = 24 * 3600


def test_more_than_a_page_goes_and_what_is_young_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 2)
    stage = Stage(tmp_path)
    for number in range(5):
        stage.ports.audit.begin(Entry(f"audit_{number}", "key_1", "start_run", PROJECT))
    stage.clock.advance(90 * DAY_S - 1)
    stage.ports.audit.begin(Entry("audit_young", "key_1", "start_run", PROJECT))
    assert forget(stage.ports, 90 * DAY_NS) == 0
    stage.clock.advance(1)
    assert forget(stage.ports, 90 * DAY_NS) == 5
    (left,) = stage.ports.audit.list(None, Sought(), 10, None)
    assert left.entry_id == "audit_young"
    stage.stores.close()


def test_what_a_project_sent_is_known_for_thirty_days(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    sha256 = stage.put(b"content")
    stage.clock.advance(30 * DAY_S - 1)
    forget(stage.ports, DAY_NS)
    assert stage.ports.uploads.known(PROJECT, (sha256,))
    stage.clock.advance(1)
    forget(stage.ports, DAY_NS)
    assert not stage.ports.uploads.known(PROJECT, (sha256,))
    assert stage.ports.blobs.has(sha256), "the bytes have owners of their own"
    stage.stores.close()
