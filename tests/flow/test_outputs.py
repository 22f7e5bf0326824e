"""What is kept of what a command printed: in its row, to the byte in a blob, and what a report shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import BinaryIO

import pytest

from app.domain.machine import TAIL_BYTES, CommandEnd
from app.domain.run import Blob
from app.errors import Unavailable
from app.flow._results import OWN_ROW_BYTES, exec_result
from app.ports import Ports
from tests.flow.stage import Stage


def ended(stdout: bytes = b"", stderr: bytes = b"", *, truncated: bool = False) -> CommandEnd:
    return CommandEnd(0, None, False, 5, stdout, stderr, truncated)


def read(ports: Ports, blob: Blob | None) -> bytes:
    assert blob is not None
    with ports.blobs.open(blob.sha256) as source:
        found = source.read()
    assert len(found) == blob.size_bytes
    return found


def test_what_a_row_says_to_the_byte_needs_no_blob(stage: Stage) -> None:
    result = exec_result(stage.ports, ended("grün\n".encode(), b"e"))
    assert (result.stdout, result.stderr) == ("grün\n", "e")
    assert (result.stdout_blob, result.stderr_blob, result.truncated) == (None, None, False)


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"a\0b", b"half \xc3"])
def test_what_is_no_text_is_kept_as_it_was(stage: Stage, raw: bytes) -> None:
    result = exec_result(stage.ports, ended(b"", raw))
    assert "\ufffd" in result.stderr
    assert read(stage.ports, result.stderr_blob) == raw
    assert (result.stdout_blob, result.truncated) == (None, False)


def test_long_output_has_head_and_tail_in_its_row_and_all_of_it_in_a_blob(stage: Stage) -> None:
    raw = b"first" + b"." * OWN_ROW_BYTES + b"last"
    result = exec_result(stage.ports, ended(raw))
    assert len(result.stdout) == OWN_ROW_BYTES
    assert result.stdout.startswith("first.")
    assert result.stdout.endswith(".last")
    assert (result.truncated, result.cut) == (True, False)
    assert read(stage.ports, result.stdout_blob) == raw
    assert exec_result(stage.ports, ended(raw, truncated=True)).cut is True


def test_a_report_shows_the_last_of_it(stage: Stage) -> None:
    exact = exec_result(stage.ports, ended(b"x" * TAIL_BYTES)).reported()
    assert (len(exact.stdout_tail), exact.truncated) == (TAIL_BYTES, False)
    more = exec_result(stage.ports, ended(b"y" + b"x" * TAIL_BYTES)).reported()
    assert (more.stdout_tail, more.truncated) == ("x" * TAIL_BYTES, True)


class Counted:
    """Blobs that count what is written, or are away."""

    def __init__(self, ports: Ports, *, away: bool = False) -> None:
        self.inner, self.away, self.puts = ports.blobs, away, 0

    def put(self, source: BinaryIO, *, expect: str | None, limit_bytes: int) -> tuple[str, int]:
        if self.away:
            raise Unavailable("blobs_away", "files cannot be kept: No space left on device")
        self.puts += 1
        return self.inner.put(source, expect=expect, limit_bytes=limit_bytes)

    def open(self, sha256: str) -> BinaryIO:
        return self.inner.open(sha256)

    def has(self, sha256: str) -> bool:
        return self.inner.has(sha256)

    def older_than(self, age_ns: int) -> frozenset[str]:
        return self.inner.older_than(age_ns)

    def delete_older(self, sha256: str, age_ns: int) -> bool:
        return self.inner.delete_older(sha256, age_ns)

    def delete(self, sha256s: Iterable[str]) -> None:
        self.inner.delete(sha256s)


def test_what_many_print_alike_is_written_once(stage: Stage) -> None:
    blobs = Counted(stage.ports)
    ports = replace(stage.ports, blobs=blobs)
    results = [exec_result(ports, ended(b"z" * (OWN_ROW_BYTES + 1))) for _ in range(3)]
    assert blobs.puts == 1
    assert len({result.stdout_blob for result in results}) == 1


def test_a_result_is_saved_also_where_its_output_cannot_be(stage: Stage) -> None:
    ports = replace(stage.ports, blobs=Counted(stage.ports, away=True))
    result = exec_result(ports, ended(b"z" * (OWN_ROW_BYTES + 1)))
    assert (result.exit_code, result.stdout_blob, result.cut) == (0, None, True)
    assert len(result.stdout) == OWN_ROW_BYTES
