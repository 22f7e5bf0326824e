"""The whole path on AWS, on one machine: what Amazon does behind its API is done here by files and loop devices.

Read in this order: `storage.py` (volumes and snapshots), `account.py` (the API in front of them), `metadata.py` (what
an instance is told about itself), `serve.py` and `zone.py` (the process, and how it is used); `redis.py`, `hosts.py`
and `deployment.py` (what runs beside it); `story.py` (what happens), `judge.py` and `leavings.py` (what has to be true
of it), `__main__.py` (the drill).
"""
