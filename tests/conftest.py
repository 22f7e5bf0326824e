"""What holds for every test."""

from __future__ import annotations

import os
import signal

from hypothesis import Phase, settings

# Where the tools of ext4 are, which a user's path may lack.
os.environ["PATH"] += ":/usr/sbin:/sbin"

# Whoever is started in the background by a shell ignores Ctrl-C, and hands that down to the programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# For whoever only asks whether a test fails: finding the least example takes many times as long as finding one. What is
# drawn follows the seed that is given, in CI too, where it would else follow the text of the test.
settings.register_profile(
    "unshrunk", phases=(Phase.explicit, Phase.generate), derandomize=False, database=None
)
