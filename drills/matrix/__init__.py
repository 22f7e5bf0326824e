"""The fault matrix: every way in which an environment may fail, caused for real, and how each was named.

Read in this order: `case.py` (what a case is, and how to write one), `scene.py` (what a cause gets), the cases (every
module that has `CASES`: what a guest does to itself in `guests.py`, what is wrong on the wire in `wires.py`, ...),
`judge.py` (what has to be true of each), `batch.py` (many cases in one run of the stack), `output.py` (what is said of
them). `__main__.py` runs them; `policy.py` and `proxy.py` are what some cases break things with.
"""
