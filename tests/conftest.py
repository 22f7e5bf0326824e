"""What holds for every test."""

from __future__ import annotations

import os

# Where the tools of ext4 are, which a user's path may lack.
os.environ["PATH"] += ":/usr/sbin:/sbin"
