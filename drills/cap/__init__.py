"""`make drill-cap`: the real stack on PostgreSQL and real machines, while parts of it are killed at random times.

Read in this order: `plan.py` (what a seed means), `faults.py` (how things are broken), `judge.py` (what has to be true
afterwards), `seed.py` (one seed, from start to verdict); `__main__.py` is around them.
"""
