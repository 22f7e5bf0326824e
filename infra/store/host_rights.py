"""What a host's own login may do with each table, and why: everything else is the control plane's alone.

Every table has an entry, also where that is nothing. `ME` is the host that the session's login names. Of what depends
on a row as it was and as it becomes, or on rows that the host does not see, `host_guards.py` has the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from infra.store.tables import METADATA

ME = "(SELECT public.promigence_host_id())"
EVERY = "true"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on the rows for which a condition holds; `after` is what must hold of a row that was changed.

    `columns` are those that may be read or written, all of them if it is empty.
    """

    verb: str
    rows: str
    why: str
    columns: tuple[str, ...] = ()
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """All rights on one table; `why` says it of the table where there are none."""

    rights: tuple[Right, ...] = field(default=())
    why: str = ""


def nothing(why: str) -> Decision:
    return Decision(why=why)


def may(*rights: Right) -> Decision:
    return Decision(rights)


def all_but(table: str, *names: str) -> tuple[str, ...]:
    """The columns of a table without some."""
    return tuple(each.name for each in METADATA.tables[table].columns if each.name not in names)


def _there_is(found: str) -> str:
    """Looked for by the row's own key. With an offset, which skips nothing, the planner may not look at all that there
    ever was of this host instead and remember that for one row.
    """
    return f"EXISTS (SELECT FROM {found} OFFSET 0)"


def _has_machine(run_id: str) -> str:
    """This host has, or had, a machine of the run."""
    return _there_is(f"public.attempt a WHERE a.run_id = {run_id} AND a.host_id = {ME}")


def _has_fork(run_id: str) -> str:
    """A fork of the run has its place here."""
    return _there_is(
        f"public.fork f WHERE f.run_id = {run_id} AND f.host_id = {ME} AND f.state <> 'ended'"
    )


def _machine_here(attempt_id: str) -> str:
    return _there_is(f"public.attempt a WHERE a.attempt_id = {attempt_id} AND a.host_id = {ME}")


def _command_here(row: str) -> str:
    """Of a machine here, as a command of that machine's own fork."""
    return _there_is(
        "public.attempt a JOIN public.fork f ON f.fork_id = a.fork_id "
        f"WHERE a.attempt_id = {row}.attempt_id AND a.host_id = {ME} "
        f"AND f.fork_id = {row}.fork_id AND f.project_id = {row}.project_id"
    )


def _built(build_id: str) -> str:
    """What is visible of builds is what is built here."""
    return _there_is(f"public.build b WHERE b.build_id = {build_id}")


_TEMPLATE = _there_is(
    f"public.fork f WHERE f.fork_id = build.template_fork_id AND f.host_id = {ME}"
)
_BUILD = f"({_has_machine('build.run_id')} OR {_TEMPLATE})"
_RESOURCE = (
    f"(host_id = {ME} OR (host_id IS NULL AND kind = 'snapshot' AND "
    f"{_built('resource.bundle_id')}))"
)
_OWN = f"host_id = {ME}"

DECISIONS: dict[str, Decision] = {
    "host": may(
        Right(
            "SELECT",
            EVERY,
            "what others have warm decides what this one keeps so; whose bundles broke elsewhere",
        ),
        Right("INSERT", _OWN, "it registers"),
        Right("UPDATE", _OWN, "heartbeat, room, failures, self-tests", all_but("host", "host_id")),
    ),
    "worker": may(
        Right(
            "SELECT",
            EVERY,
            "a host whose processes drain keeps nothing warm, and so does this one for it",
        ),
        Right("INSERT", _OWN, "a process begins"),
        Right("UPDATE", _OWN, "it lives; it is asked to drain", ("heartbeat_ns", "draining")),
        Right("DELETE", _OWN, "it has ended"),
    ),
    "trial": may(
        Right("SELECT", _OWN, "what its own machines hold"),
        Right("INSERT", _OWN, "a self-test, a proof"),
        Right("DELETE", _OWN, "it is over"),
    ),
    "deployment": may(Right("SELECT", EVERY, "machines of an older epoch are ended")),
    "attempt": may(
        Right("SELECT", _OWN, "its machines"),
        Right("INSERT", _OWN, "a machine begins"),
        Right(
            "UPDATE",
            f"{_OWN} AND closed_boot_ns IS NULL",
            "it is handed over, adopted, ended; lease and rate stay what they were",
            (
                *("claim", "ready_boot_ns", "ready_ns", "closed_boot_ns", "closed_ns"),
                *("charged_micros", "verification_micros", "tasks_micros", "environment_micros"),
                *("late_ns", "intent", "failure", "console"),
            ),
            after=_OWN,
        ),
    ),
    "fork": may(
        Right(
            "SELECT",
            f"({_OWN} OR {_has_machine('fork.run_id')})",
            "those placed here; how many of their runs are kept, and what became of a build's",
        ),
        Right(
            "INSERT",
            "host_id IS NULL AND attempt_id IS NULL AND state = 'queued' AND role = 'fork'",
            "forks that verify a candidate join their build",
        ),
        Right(
            "UPDATE",
            f"{_OWN} AND state <> 'ended'",
            "its way through its machine's life",
            (
                *("state", "reason", "outcome", "host_id", "avoid_hosts", "attempt_id", "attempts"),
                *("result", "checks", "failure", "grant_micros", "worst_micros"),
                *("queued_ns", "ready_ns", "ended_ns", "kept", "kept_until_ns"),
            ),
            after=f"({_OWN} OR (host_id IS NULL AND state = 'queued'))",
        ),
    ),
    "run": may(
        Right(
            "SELECT",
            f"({_has_machine('run.run_id')} OR {_has_fork('run.run_id')})",
            "what its forks are to do, and at what rate",
        ),
        Right(
            "UPDATE",
            _has_machine("run.run_id"),
            "a machine's end is charged",
            ("pool_micros", "granted_micros", "charged_micros"),
        ),
    ),
    "ledger": may(
        Right("INSERT", _has_machine("ledger.run_id"), "what a machine's end moved"),
    ),
    "exec": may(
        Right("SELECT", _machine_here("exec.attempt_id"), "commands of its machines"),
        Right("INSERT", _command_here("exec"), "a run's own command begins"),
        Right(
            "UPDATE",
            _machine_here("exec.attempt_id"),
            "a command begins, ends, is lost",
            ("state", "result", "failure", "file"),
        ),
    ),
    "sample": may(
        Right(
            "SELECT",
            _machine_here("sample.attempt_id"),
            "whether it was kept",
            ("run_id", "sample"),
        ),
        Right("INSERT", _machine_here("sample.attempt_id"), "no two machines show the same"),
    ),
    "event_count": may(
        Right("SELECT", _has_machine("event_count.run_id"), "the next number"),
        Right("UPDATE", _has_machine("event_count.run_id"), "the next number", ("events",)),
    ),
    "event": may(
        Right(
            "INSERT",
            f"{_has_machine('event.run_id')} AND (host_id IS NULL OR {_OWN}) AND number <= "
            "(SELECT c.events FROM public.event_count c WHERE c.run_id = event.run_id)",
            "its machines tell what happens to them; what was told stays",
        ),
    ),
    "build": may(
        Right("SELECT", _BUILD, "what is built here"),
        Right(
            "UPDATE",
            _BUILD,
            "it goes on, and ends",
            ("state", "step", "candidate", "snapshot_ref", "error", "lines"),
        ),
    ),
    "build_line": may(
        Right("SELECT", _built("build_line.build_id"), "which are too old", ("build_id", "n")),
        Right("INSERT", _built("build_line.build_id"), "its log"),
        Right("DELETE", _built("build_line.build_id"), "the log is bounded"),
    ),
    "snapshot": may(
        Right(
            "SELECT",
            EVERY,
            "any of them may be forked here; bundles that none names are made away with",
        ),
        Right(
            "INSERT",
            "EXISTS (SELECT FROM public.build b WHERE b.build_id = snapshot.bundle_id AND "
            "b.project_id = snapshot.project_id AND b.definition::json ->> 'name' = snapshot.name)",
            "a build of this host's is accepted, under its own name",
        ),
    ),
    "warm_target": may(Right("SELECT", EVERY, "what to keep warm")),
    "resource": may(
        Right("SELECT", EVERY, "of which snapshot a bundle is mounted"),
        Right("INSERT", _RESOURCE, "a volume of its own, a snapshot of what was built here"),
        Right(
            "UPDATE",
            _RESOURCE,
            "it is made, settled, gone",
            ("cloud_id", "deadline_ns", "made_ns", "gone_ns"),
        ),
    ),
    "project": may(
        Right(
            "SELECT",
            EVERY,
            "no limits and no budget: what it gives back from",
            ("project_id", "live_forks"),
        ),
        Right("UPDATE", EVERY, "a machine's end gives its place back", ("live_forks",)),
    ),
    "project_month": nothing("budgets, and what is left of them"),
    "api_key": nothing("who may call"),
    "receipt": nothing("answers of others"),
    "upload": nothing("whose bytes are known"),
    "audit": nothing("who changed what"),
    "quote": nothing("a run has a copy of its own"),
    "run_label": nothing("for who searches"),
    "control_process": nothing("the control plane's own"),
    "clock": nothing("of SQLite alone"),
}
