"""The SSH host key that a machine is told, and by which it is known again."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from infra.guest.hostkey import make_host_key, pin, pinned


def test_a_key_is_new_each_time_and_in_the_form_of_its_server() -> None:
    file, public = make_host_key()
    assert make_host_key()[1] != public
    (length,) = struct.unpack(">I", file[:4])
    assert file[4 : 4 + length] == b"ssh-ed25519"
    rest = file[4 + length :]
    assert struct.unpack(">I", rest[:4]) == (64,)
    private = Ed25519PrivateKey.from_private_bytes(rest[4:36])
    assert rest[36:] == public == private.public_key().public_bytes_raw()


def test_a_pinned_key_is_found_by_the_next_worker(tmp_path: Path) -> None:
    assert pinned(tmp_path) is None
    _, public = make_host_key()
    pin(tmp_path, bytes(32))
    pin(tmp_path, public)
    assert pinned(tmp_path) == public
    assert [path.name for path in tmp_path.iterdir()] == ["hostkey.pub"]


@pytest.mark.parametrize("text", ["", "zz", "00" * 31, "00" * 33])
def test_a_broken_pin_is_no_key(tmp_path: Path, text: str) -> None:
    (tmp_path / "hostkey.pub").write_text(text)
    assert pinned(tmp_path) is None
