"""What a guest's shell says of files, by the codes that the API has a status for."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest

from app.errors import BadRequest, NotFound, PromigenceError, TooLarge
from infra.guest import files
from infra.guest.ssh import Finished, SshChannel

LIMIT_BYTES = 10


class Channel:
    """A channel whose every command prints and ends in one way."""

    def __init__(self, exit_code: int, printed: bytes = b"") -> None:
        self._exit_code, self._printed = exit_code, printed

    def run(self, _command: str, *, sink: Any, **_: object) -> Finished:
        sink(self._printed)
        return Finished(self._exit_code, "it says why")


def channel(exit_code: int, printed: bytes = b"") -> SshChannel:
    return cast(SshChannel, Channel(exit_code, printed))


@pytest.mark.parametrize(
    ("exit_code", "printed", "refusal", "code"),
    [
        (10, b"", NotFound, "not_found"),
        (11, b"", BadRequest, "is_a_directory"),
        (12, b"", TooLarge, "too_large"),
        (0, b"x" * (LIMIT_BYTES + 1), TooLarge, "too_large"),
        (13, b"", BadRequest, "path_not_usable"),
    ],
)
def test_a_file_that_cannot_be_read(
    exit_code: int, printed: bytes, refusal: type[PromigenceError], code: str
) -> None:
    with pytest.raises(refusal) as refused:
        files.download(channel(exit_code, printed), "/tmp/a", io.BytesIO(), LIMIT_BYTES)
    assert refused.value.code == code


def test_a_path_that_cannot_be_written_is_a_bad_request() -> None:
    with pytest.raises(BadRequest) as refused:
        files.upload(channel(10), io.BytesIO(b"x"), "/tmp/a/b", 0o644)
    assert refused.value.code == "no_such_file"
