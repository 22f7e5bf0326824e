"""What a process has measured and what stands in the rows, as Prometheus reads it."""

from __future__ import annotations

from infra.metrics.registry import Metrics
from infra.metrics.serving import Guarded, served

__all__ = ["Guarded", "Metrics", "served"]
