"""The main job on real machines: one verified snapshot, twenty warm forks, one honest report.

Read in this order: `task.toml` (the environment), `environment.py` (where its files come from),
`rollout/` (what runs in a fork), `policy.py` (whom the rollout asks), `__main__.py` (the job).
"""
