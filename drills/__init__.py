"""Drills: the product while things break, judged by eyes of its own.

Each is a package, run as `python -m drills.NAME`:

    cap        whether the spend cap holds while parts of the stack are killed at random times
    matrix     every kind of failure caused for real, and what it was called
    once       no command runs twice, however often its worker dies
    chaos      random faults on simulated machines, judged against what truly happened
    rehearsal  the whole path on AWS, on one machine: three hosts, volumes with real bytes, one host lost

They share what is around the stack and what is seen of it: `rig.py`, `postgres.py` and `forwarder.py` (a real stack
whose database can be taken away), `watch.py` (every machine, as the kernel shows it), `rows.py` and `books.py` (what
the database says, and whether the money of it is right), `leavings.py` (what was left behind),
`program.py` (how they end).
"""
