"""A report as a trainer takes it."""

from __future__ import annotations

from promigence.types import Report, Rewards


def rewards(report: Report) -> Rewards:
    """Rewards and mask by fork index, with both denominators.

    `mask` is true where the reward may be trained on; everywhere else `rewards` holds None, never a zero, so
    that a forgotten mask fails loudly. `attempted` counts the forks that have ended, however they did; `valid`
    counts the mask. Average over `valid`; watch `attempted - valid`. Raises ValueError for a report without forks.
    """
    if "forks" not in report:
        raise ValueError("this report was asked for without its forks; use runs.report(run_id)")
    forks = sorted(report["forks"], key=lambda fork: fork["index"])
    mask = [fork["reward_valid"] and fork["reward"] is not None for fork in forks]
    return {
        "rewards": [fork["reward"] if ok else None for fork, ok in zip(forks, mask, strict=True)],
        "mask": mask,
        "keys": [fork["key"] for fork in forks],
        "attempted": sum(fork["outcome"] != "pending" for fork in forks),
        "valid": sum(mask),
    }
