"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

# Where the tools of ext4 are, which a user's path may lack.
os.environ["PATH"] += ":/usr/sbin:/sbin"

# For whoever only asks whether a test fails: finding the least example takes many times as long as finding one. What is
# drawn follows the seed that is given, in CI too, where it would else follow the text of the test.
settings.register_profile(
    "unshrunk", phases=(Phase.explicit, Phase.generate), derandomize=False, database=None
)
