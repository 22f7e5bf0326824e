"""A report as a trainer takes it."""

from __future__ import annotations

from promigence.types import ForkReport, Report, RewardGroup, Rewards


def rewards(report: Report) -> Rewards:
    """Rewards and mask by fork index, in groups too, with both denominators.

    `mask` is true where the reward may be trained on; everywhere else `rewards` holds None, never a zero, so
    that a forgotten mask fails loudly. `attempted` counts the forks that have ended, however they did; `valid`
    counts the mask. Average over `valid`; watch `attempted - valid`. A group is the forks with one key and one
    snapshot: take its baseline over its valid forks. Raises ValueError for a report without forks.
    """
    if "forks" not in report:
        raise ValueError("this report was asked for without its forks; use runs.report(run_id)")
    forks = sorted(report["forks"], key=lambda fork: fork["index"])
    mask = [fork["reward_valid"] and fork["reward"] is not None for fork in forks]
    return {
        "rewards": [fork["reward"] if ok else None for fork, ok in zip(forks, mask, strict=True)],
        "mask": mask,
        "keys": [fork["key"] for fork in forks],
        "groups": _groups(forks, mask),
        "attempted": sum(_ended(fork) for fork in forks),
        "valid": sum(mask),
    }


def _groups(forks: list[ForkReport], mask: list[bool]) -> list[RewardGroup]:
    """By first fork. A key alone is not enough: a step may leave it out, or use it for two environments."""
    places: dict[tuple[str | None, str], list[int]] = {}
    for place, fork in enumerate(forks):
        places.setdefault((fork["key"], fork["snapshot"]), []).append(place)
    return [
        {
            "key": key,
            "snapshot": snapshot,
            "indices": indices,
            "attempted": sum(_ended(forks[place]) for place in indices),
            "valid": sum(mask[place] for place in indices),
        }
        for (key, snapshot), indices in places.items()
    ]


def _ended(fork: ForkReport) -> bool:
    return fork["outcome"] != "pending"
