"""The shapes of everything that goes in and comes out: plain dicts, typed.

Money is in US dollars, durations are in seconds, instants are RFC 3339 strings in UTC. A key without a value is None.
A server may add keys; the ones named here are always there.
"""

from __future__ import annotations

from promigence.types.held import (
    Downloaded,
    ExecResult,
    Fork,
    ForkState,
    Released,
    Uploaded,
)
from promigence.types.money import (
    LedgerMove,
    MachineLife,
    RunLedger,
)
from promigence.types.project import Project
from promigence.types.runs import (
    Check,
    Concurrency,
    Cost,
    FailedAttempt,
    Failure,
    ForkReport,
    Grade,
    Outcome,
    Progress,
    Quote,
    QuoteLimits,
    Rate,
    Report,
    Rewards,
    Run,
    RunState,
    Started,
    Totals,
)
from promigence.types.snapshots import (
    Build,
    BuildLine,
    BuildState,
    Deleted,
    Host,
    HostQuarantine,
    Snapshot,
)
from promigence.types.terms import (
    Definition,
    Exec,
    GradeExec,
    Group,
    OwnTest,
    QuoteTerms,
    Shape,
    StartTerms,
)
from promigence.types.usage import Usage, UsageAmounts, UsageEstimate, UsageRow

__all__ = [
    "Build",
    "BuildLine",
    "BuildState",
    "Check",
    "Concurrency",
    "Cost",
    "Definition",
    "Deleted",
    "Downloaded",
    "Exec",
    "ExecResult",
    "FailedAttempt",
    "Failure",
    "Fork",
    "ForkReport",
    "ForkState",
    "Grade",
    "GradeExec",
    "Group",
    "Host",
    "HostQuarantine",
    "LedgerMove",
    "MachineLife",
    "Outcome",
    "OwnTest",
    "Progress",
    "Project",
    "Quote",
    "QuoteLimits",
    "QuoteTerms",
    "Rate",
    "Released",
    "Report",
    "Rewards",
    "Run",
    "RunLedger",
    "RunState",
    "Shape",
    "Snapshot",
    "StartTerms",
    "Started",
    "Totals",
    "Uploaded",
    "Usage",
    "UsageAmounts",
    "UsageEstimate",
    "UsageRow",
]
