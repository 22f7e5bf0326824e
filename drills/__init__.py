"""Fault drills: the real stack on PostgreSQL and real machines, while parts of it are killed at random times.

Read in this order: `plan.py` (what a seed means), `faults.py` and `forwarder.py` (how things are broken), `watch.py`
(the drill's own eyes on every machine), `rows.py` and `leavings.py` (what is read afterwards), `judge.py` (what has to
be true of it), `cap.py` (one seed); `__main__.py`, `rig.py` and `postgres.py` are around them.

`matrix/` is another drill: every kind of failure caused for real, and what it was called. `chaos/` (random faults, on
fakes) and `once/` (no command runs twice) are others.
"""
