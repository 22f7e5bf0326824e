"""At most once, and never lost: commands counted outside of their guests while the worker is killed again and again.

Read in this order: `counter.py` (what a command does is counted here), `kills.py` (when the worker is killed),
`judge.py` (what has to be true afterwards), `__main__.py` (the drill).
"""
