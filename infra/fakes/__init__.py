"""The ports' fakes: product code, shipped, and held to the same conformance checks as the real parts.

They back `make up MACHINES=fake` and the flow tests. Time is the clock's that they are given: with a
ManualClock nothing
sleeps. Commands are scripts of a tiny language (`script.py`); a host shell never runs.
"""
