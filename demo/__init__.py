"""The main job on real machines: one verified snapshot, twenty warm forks, one honest report.

Read in this order: `task.toml` (the environment), `environment.py` (where its files come from),
`rollout/` (what runs in a fork), `policy.py` (whom the rollout asks), `job.py` (the job, by the SDK),
`claims.py` (what has to be true of its reports); `__main__.py`, `stack.py` and `view.py` are around it.
"""
