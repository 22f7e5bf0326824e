"""The way out of a machine: requests (`http`), addresses (`addresses`), and the proxy that joins them (`proxy`)."""

from __future__ import annotations

from infra.egress.proxy import EgressProxy

__all__ = ["EgressProxy"]
