"""What the product costs in time on this machine: `python -m bench`."""

from __future__ import annotations
