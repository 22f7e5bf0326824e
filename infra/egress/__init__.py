"""The way out of a machine: requests (`http`), the proxy that answers them (`proxy`), and, in a process and under a
user of its own (`dialler`), where they may go (`reach`, `addresses`).

The worker's end of that process is `dialling`. The process imports this package too, and is to stay small: so it is not
imported here.
"""

from __future__ import annotations

from infra.egress.proxy import EgressProxy
from infra.egress.reach import Reach

__all__ = ["EgressProxy", "Reach"]
