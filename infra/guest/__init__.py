"""Inside a machine, from the host: its control port (`control`, `wire`), SSH (`ssh`, `files`), `SshGuest` over both."""

from __future__ import annotations

from infra.guest.adapter import SshGuest

__all__ = ["SshGuest"]
