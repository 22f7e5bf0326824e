"""The list, goes on: what holds the budgets and limits of projects."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PROJECTS = ("tests/contract/test_store_projects.py", "-k", "sqlite and not at_once")

BUDGETS = "infra/store/budgets.py"
ROOM = "infra/store/room.py"
PLACING = "infra/store/placing.py"

PROJECT_MUTANTS = (
    Mutant(
        BUDGETS,
        "unspent = run.budget_micros - run.charged_micros",
        "unspent = run.budget_micros",
        "a month keeps what its runs were charged",
        PROJECTS,
    ),
    Mutant(
        BUDGETS,
        "after = project_months.c.committed_micros + run.budget_micros",
        "after = project_months.c.committed_micros + 0",
        "a run's budget is set aside in its month",
        PROJECTS,
    ),
    Mutant(
        BUDGETS,
        "after <= project_months.c.budget_micros",
        "after < project_months.c.budget_micros",
        "a month's budget can be spent whole",
        PROJECTS,
    ),
    Mutant(
        BUDGETS,
        "month_of(run.created_ns)",
        "month_of(run.ended_ns or 0)",
        "a run is of the month that it began in",
        PROJECTS,
    ),
    Mutant(
        ROOM,
        "_counted(projects.c.live_forks, sign * count)",
        "_counted(projects.c.live_forks, count)",
        "a fork that ends is no longer of its project's limit",
        PROJECTS,
    ),
    Mutant(
        PLACING,
        "        if left.get(project_id) == 0:\n            continue\n",
        "",
        "what a limit does not allow is left out, and not an error",
        PROJECTS,
    ),
)
