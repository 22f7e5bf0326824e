"""A machine's SSH host key: made by the host, which so knows whom it talks to, and told to the guest at the barrier."""

from __future__ import annotations

import struct
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PIN = "hostkey.pub"
_PUBLIC_BYTES = 32


def make_host_key() -> tuple[bytes, bytes]:
    """A new ed25519 key: (its file in dropbear's form, its public half of 32 bytes)."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    kind = b"ssh-ed25519"
    pair = key.private_bytes_raw() + public
    return struct.pack(">I", len(kind)) + kind + struct.pack(">I", len(pair)) + pair, public


def pin(directory: Path, public: bytes) -> None:
    """Remember a machine's key beside it, for a worker that takes it over."""
    draft = directory / f"{_PIN}.draft"
    draft.write_text(public.hex())
    draft.replace(directory / _PIN)


def pinned(directory: Path) -> bytes | None:
    """The key that a machine was given; None if it never passed its barrier."""
    try:
        public = bytes.fromhex((directory / _PIN).read_text())
    except (OSError, ValueError):
        return None
    return public if len(public) == _PUBLIC_BYTES else None
