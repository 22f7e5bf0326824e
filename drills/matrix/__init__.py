"""The fault matrix: every way in which an environment may fail, caused for real, and how each was named.

Read in this order: `case.py` (what a case is, and how to write one), `scene.py` (what a cause gets), the cases
themselves (`guests.py`, `wires.py`, `exits.py`, `replaced.py`, `hosts.py`, `workers.py`, `grades.py`), `judge.py`
(what has to be true of each), `batch.py` (one run of the stack for many cases), `table.py` (what is told);
`__main__.py` runs them.
"""
