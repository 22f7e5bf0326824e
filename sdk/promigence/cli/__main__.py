"""`python -m promigence.cli`."""

from __future__ import annotations

from promigence.cli.main import main

main()
