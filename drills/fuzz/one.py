"""One target under libFuzzer, which learns from the code's branches what to try next.

python -m drills.fuzz.one TARGET [libFuzzer's own options] CORPUS
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["app", "infra", "drills.fuzz"]):
    from drills.fuzz.targets import TARGETS


def main() -> None:
    """Until its time is over, or a promise is broken."""
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
