"""Results as a person reads them."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from promigence.cli.follow import bar
from promigence.cli.follow import kept as kept_line
from promigence.cli.session import moment, plain, table, usd
from promigence.types import (
    Fork,
    ForkReport,
    Host,
    Quote,
    Report,
    Run,
    Snapshot,
    Stopped,
    StoredBundle,
)

MOST_FORKS = 20


def quote(told: Quote) -> RenderableType:
    rate, room = told["rate"], told["concurrency"]
    return Text(
        f"at most {usd(told['max_cost_usd'])} (worst case {usd(told['worst_case_usd'])}, "
        f"cap {usd(told['spend_cap_usd'])}{_project_left(told)}); "
        f"{told['funded_seconds_per_fork']:.0f} s funded for each fork at {usd(rate['usd_per_fork_hour'])} "
        f"a fork-hour {rate['basis']}\n"
        f"{min(room['requested'], room['free_now'])} of {room['requested']} can start now "
        f"({room['slots']} slots{_of_project(told)}, {told['accelerator']}); quote {told['quote_id']} "
        f"holds until {told['expires_at']}"
    )


def _project_left(told: Quote) -> str:
    left = told["limits"]["project_left_usd"]
    if left is None:
        return ""
    binds = ", which binds" if told["limits"]["binding"] == "project_budget" else ""
    return f", project's month {usd(left)}{binds}"


def _of_project(told: Quote) -> str:
    return " by the project's limit" if told["concurrency"]["binding"] == "project" else ""


def report(told: Report) -> list[RenderableType]:
    """The bar, the money, and the forks that did not pass."""
    cost = told["cost"]
    state = told["state"] if told["final"] else f"{told['state']}, not final"
    shown: list[RenderableType] = [
        Text.assemble((told["run_id"], "bold"), f"  {state}"),
        bar(told["totals"]),
        Text(
            f"cost {usd(cost['total_usd'])} of {usd(cost['spend_cap_usd'])}: "
            f"tasks {usd(cost['tasks_usd'])}, environment {usd(cost['environment_usd'])}, "
            f"verification {usd(cost['verification_usd'])}"
        ),
    ]
    if told["stopped"] is not None:
        shown.append(Text(stopped_line(told["stopped"]), style="bold magenta"))
    kept = [fork["kept"] for fork in told.get("forks", []) if fork["kept"] is not None]
    if line := kept_line(len(kept), told["run_id"]):
        shown.append(Text(line, style="yellow"))
    odd = [fork for fork in told.get("forks", []) if fork["outcome"] not in {"passed", "pending"}]
    if odd:
        rows = [(f["index"], f["fork_id"], f["outcome"], f["reward"], _why(f)) for f in odd]
        shown.append(
            table("#", "fork", "outcome", "reward", "why", rows=rows[:MOST_FORKS], prose="why")
        )
    if len(odd) > MOST_FORKS:
        shown.append(Text(f"and {len(odd) - MOST_FORKS} more (--json has all)", style="dim"))
    return shown


def stopped_line(told: Stopped) -> str:
    share = told["stop_when"]["env_failed_share"]
    return (
        f"stopped by its rule at {moment(told['at'])}: the environment failed {told['env_failed']} forks "
        f"(stop_when env_failed_share {share:g}); {told['forks']} others were stopped"
    )


def run(told: Run) -> list[RenderableType]:
    return [
        Text.assemble((told["run_id"], "bold"), f"  {told['state']}"),
        bar(told["totals"]),
    ]


def runs(told: list[Run]) -> RenderableType:
    rows = [
        (
            one["run_id"],
            one["state"],
            f"{one['totals']['requested'] - one['totals']['pending']}/{one['totals']['requested']}",
            usd(one["cost"]["total_usd"]),
            ", ".join(one["snapshots"]),
            " ".join(f"{name}={value}" for name, value in one["labels"].items()),
            moment(one["created_at"]),
        )
        for one in told
    ]
    return table(
        "run", "state", "ended", "cost", "snapshots", "labels", "created", rows=rows, prose="labels"
    )


def forks(told: list[Fork]) -> RenderableType:
    rows = [
        (f["index"], f["fork_id"], _state(f), f["outcome"], f["reason"], f["key"], f["host"])
        for f in told
    ]
    return table("#", "fork", "state", "outcome", "reason", "key", "host", rows=rows)


def _state(fork: Fork) -> str:
    kept = fork["kept"]
    state = fork["state"] if kept is None else f"kept: {kept['outcome']}"
    return f"{state}, {line}" if (line := draining(fork)) else state


def draining(fork: Fork) -> str:
    """That a fork's host takes no more forks, and until when it lives; nothing of any other."""
    if not fork["draining"]:
        return ""
    gone_at = fork["gone_at"]
    return "its host drains" if gone_at is None else f"its host is gone at {moment(gone_at)}"


def snapshot(told: Snapshot) -> RenderableType:
    shape = told["shape"]
    checks = [
        f"{check['name']} {'sound' if check['sound'] else 'UNSOUND'}" for check in told["checks"]
    ]
    return plain(
        f"{told['snapshot']}  {told['state']}  from {told['image']}\n"
        f"{shape['vcpus']} vCPU, {shape['memory_mib']} MiB, {shape['disk_gib']} GiB disk; "
        f"{told['bytes'] / 1e6:.0f} MB stored; {told['accelerator']}\n"
        f"checked: {', '.join(checks) or 'nothing told'}"
        f"{_also(told)}"
    )


def _also(told: Snapshot) -> str:
    """What not every snapshot has to say."""
    origin = told["provenance"].get("rebuilt_from")
    why = told["restore"]["why"]
    kept = [_copy(one) for one in told["bundles"]]
    lines = [
        f"kept: {', '.join(kept)}" if kept else "",
        f"rebuilt from {origin['snapshot']}, {_differing(origin)}" if origin else "",
        _warm_line(told) if told["warm"] else "",
        f"cannot be restored: {why}" if why and told["state"] != "verified" else why or "",
    ]
    return "".join(f"\n{line}" for line in lines if line)


def _copy(one: StoredBundle) -> str:
    if one["where"] == "cloud":
        return f"{one['id']} in {one['region']}"
    return f"on {one['id']}{' (warm)' if one['mounted'] else ''}"


def _differing(origin: dict[str, Any]) -> str:
    parts = ", ".join(origin["differs"])
    return f"which differs in {parts}" if parts else "which does not differ"


def warm(told: Snapshot) -> RenderableType:
    if told["warm"] is None:
        return plain(f"{told['name']} is kept warm nowhere")
    return plain(_warm_line(told))


def _warm_line(told: Snapshot) -> str:
    warm = told["warm"]
    assert warm is not None
    parts = [f"warm on {', '.join(warm['warm_on']) or 'no host yet'}"]
    if warm["coming_on"]:
        parts.append(f"coming on {', '.join(warm['coming_on'])}")
    if warm["missing"]:
        lacks = "".join(f"; {one['host']}: {one['reason']}" for one in warm["unfit"])
        parts.append(f"no host for {warm['missing']} more{lacks}")
    hosts = "host" if warm["hosts"] == 1 else "hosts"
    return f"{warm['snapshot']} is to be warm on {warm['hosts']} {hosts}: {'; '.join(parts)}"


def stale_snapshots(told: list[Snapshot]) -> RenderableType:
    rows = [(one["snapshot"], one["state"], one["latest"], one["restore"]["why"]) for one in told]
    return table("snapshot", "state", "latest", "why", rows=rows, prose="why")


def rebuilt(told: list[dict[str, Any]]) -> RenderableType:
    rows = [
        (one["rebuilds"], one["snapshot"], one["build_id"], (one["error"] or {}).get("message"))
        for one in told
    ]
    return table("rebuilds", "snapshot", "build", "error", rows=rows, prose="error")


def snapshots(told: list[Snapshot]) -> RenderableType:
    rows = [
        (one["snapshot"], one["state"], one["latest"], one["image"], moment(one["created_at"]))
        for one in told
    ]
    return table("snapshot", "state", "latest", "image", "created", rows=rows)


def hosts(told: list[Host]) -> RenderableType:
    rows = [
        (
            one["host_id"],
            one["state"],
            one["accelerator"],
            f"{one['slots_free']}/{one['slots']}",
            ", ".join(one["mounted"]),
            "; ".join(_lacks(one)),
        )
        for one in told
    ]
    return table("host", "state", "accelerator", "free", "warm", "lacks", rows=rows, prose="lacks")


def _lacks(host: Host) -> list[str]:
    """Why it gets no forks, if it gets none; then what it does without."""
    unready = host["unready"]
    return [*([unready] if unready else []), *host["missing"]]


def _why(fork: ForkReport) -> str:
    if fork["failure"] is not None:
        return (
            f"{fork['failure']['kind']} ({fork['failure']['phase']}): {fork['failure']['message']}"
        )
    if fork["exit_code"] is not None:
        last = fork["stderr_tail"].strip().rpartition("\n")[2]
        return f"exit {fork['exit_code']}{': ' if last else ''}{last[:160]}"
    return ""
