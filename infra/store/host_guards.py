"""What holds of a host's writes that no privilege and no policy can say: the row before beside the row
after, and money.

Each is a trigger that fires for hosts' logins alone. It runs with the owner's rights, for it looks at rows that the
host does not see; it takes no argument, names every table by its schema, and nobody can call it otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.domain.fork import EndReason, Outcome

# Times and figures beyond these could not be added to: one such row would end the control plane's statements for all.
MOST_NS = 4 * 10**18
MOST_UNITS = 10**9
HOST_IDS = r"""'^\[("[A-Za-z0-9._-]{1,64}"(,"[A-Za-z0-9._-]{1,64}")*)?\]$'"""
_TEXT = r'"([^"\\]|\\.)*"'
RESTORE_KEY = (
    rf"""'^\{{"qemu_build":{_TEXT},"machine_type":{_TEXT},"""
    rf""""accelerator":"(kvm|tcg)","cpu_model":{_TEXT}\}}$'"""
)


@dataclass(frozen=True, slots=True)
class Guard:
    """PL/pgSQL before a row is written. `me` is the host; `refused` is raised by `IF`s that find something wrong."""

    table: str
    verb: str
    why: str
    declared: str
    body: str


def refuse(condition: str, what: str) -> str:
    """A statement that refuses the row if a condition holds, or cannot be told."""
    return (
        f"IF ({condition}) IS NOT FALSE THEN RAISE insufficient_privilege "
        f"USING MESSAGE = '{what}'; END IF;\n"
    )


def unless_known(column: str, words: type[StrEnum]) -> str:
    """A statement that refuses a word that nobody could read again."""
    listed = ", ".join(f"'{word.value}'" for word in words)
    return refuse(f"NEW.{column} IS NOT NULL AND NEW.{column} NOT IN ({listed})", "unknown word")


def within(most: int, *columns: str) -> str:
    """A statement that refuses what is below zero or above `most`; NULL is neither."""
    outside = (f"coalesce(NEW.{name}, 0) NOT BETWEEN 0 AND {most}" for name in columns)
    return refuse(" OR ".join(outside), "no such number")


_FORK_TIMES = within(MOST_NS, "queued_ns", "ready_ns", "ended_ns", "kept_until_ns")
_HOST_ROOM = within(MOST_UNITS, "memory_mib", "disk_gib", "slots")

GUARDS: tuple[Guard, ...] = (
    *(
        Guard("host", verb, "room that can be added up", "", _HOST_ROOM)
        for verb in ("INSERT", "UPDATE")
    ),
    Guard(
        "trial",
        "INSERT",
        "room that can be added up",
        "",
        within(MOST_UNITS, "vcpus", "memory_mib", "disk_gib"),
    ),
    Guard(
        "attempt",
        "INSERT",
        "a machine is of a fork that waits here, and its lease is what the fork's grant funds",
        "f public.fork%ROWTYPE; rate bigint; waits_ns bigint;",
        "SELECT * INTO f FROM public.fork WHERE fork_id = NEW.fork_id;\n"
        "SELECT micros_per_hour, queue_timeout_ns INTO rate, waits_ns FROM public.run WHERE run_id = NEW.run_id;\n"
        + refuse("f.host_id <> me OR f.state <> 'queued'", "this fork does not wait here")
        + refuse(
            "NEW.run_id <> f.run_id OR NEW.number <> f.attempts + 1 OR NEW.micros_per_hour <> rate "
            "OR NEW.lease_ns / 3600000000000.0 * rate > f.grant_micros + 2",
            "this lease is not what the grant of its fork funds",
        )
        # Whoever closes by time what no host reports goes by this; a fork waits no longer than its run's time.
        + refuse(
            "NEW.opened_ns > f.queued_ns + waits_ns + 86400000000000",
            "no machine is opened when its fork waits no more",
        )
        + within(MOST_NS, "opened_boot_ns", "lease_ns")
        + refuse(
            "NEW.closed_boot_ns IS NOT NULL OR NEW.failure IS NOT NULL OR NEW.opened_ns < 0 OR "
            "NEW.verification_micros + NEW.tasks_micros + NEW.environment_micros <> 0",
            "a machine that begins has cost nothing",
        ),
    ),
    Guard(
        "attempt",
        "UPDATE",
        "what is shown of a machine's cost is within its lease, and an open one has not failed",
        "",
        within(MOST_NS, "ready_boot_ns", "closed_boot_ns", "ready_ns", "closed_ns", "late_ns")
        + refuse(
            "NEW.verification_micros::float8 + NEW.tasks_micros + NEW.environment_micros "
            "> 2 + NEW.lease_ns / 3600000000000.0 * NEW.micros_per_hour",
            "this machine cannot have cost that",
        )
        + refuse(
            "NEW.closed_boot_ns IS NULL AND NEW.failure IS NOT NULL", "this machine has not ended"
        ),
    ),
    Guard(
        "event_count",
        "UPDATE",
        "events are numbered on, and some numbers are left",
        "",
        refuse("NEW.events NOT BETWEEN OLD.events AND 2000000000", "no such number"),
    ),
    Guard(
        "fork",
        "INSERT",
        "forks of what was made join the build whose template lived here, as many as it asks for, and nothing else",
        "b public.build%ROWTYPE; t public.fork%ROWTYPE; joined bigint;",
        "SELECT * INTO b FROM public.build WHERE run_id = NEW.run_id;\n"
        "SELECT * INTO t FROM public.fork WHERE fork_id = b.template_fork_id;\n"
        "SELECT count(*) INTO joined FROM public.fork WHERE run_id = NEW.run_id AND role = 'fork';\n"
        + refuse(
            "b.state NOT IN ('queued', 'building', 'verifying') OR NOT EXISTS (SELECT FROM "
            "public.attempt a WHERE a.fork_id = b.template_fork_id AND a.host_id = me)",
            "no fork joins a run that is not built here",
        )
        + refuse("joined >= (b.definition::json ->> 'repeat')::int", "all have joined")
        + refuse(
            "(NEW.project_id, NEW.bundle_id, NEW.snapshot, NEW.vcpus, NEW.memory_mib, NEW.disk_gib) <> "
            "(t.project_id, b.build_id, t.snapshot, t.vcpus, t.memory_mib, t.disk_gib)",
            "this is a fork of something else",
        )
        + refuse(
            f"NEW.avoid_hosts <> '[]' OR NEW.restore_key !~ {RESTORE_KEY}", "nobody could place it"
        )
        + _FORK_TIMES,
    ),
    Guard(
        "fork",
        "UPDATE",
        "a grant is larger only by what its machine's end was topped up with; who waits is ended by nobody here",
        "moved bigint;",
        "SELECT coalesce(sum(granted_micros), 0) INTO moved FROM public.ledger\n"
        "WHERE subject_id = OLD.attempt_id AND kind IN ('charge', 'top_up');\n"
        + refuse(
            "NEW.grant_micros > OLD.grant_micros AND (OLD.attempt_id IS NULL "
            "OR NEW.attempt_id IS NOT NULL OR NEW.grant_micros > OLD.grant_micros + moved)",
            "no host grants money",
        )
        + refuse("NEW.worst_micros > OLD.worst_micros", "no host raises a worst case")
        + refuse(
            "OLD.state = 'queued' AND NEW.state NOT IN ('queued', 'restoring')",
            "a fork without a machine is not ended by a host",
        )
        + refuse(
            "NEW.attempt_id IS NOT NULL AND NEW.attempt_id IS DISTINCT FROM OLD.attempt_id AND "
            "NOT EXISTS (SELECT FROM public.attempt a WHERE a.attempt_id = NEW.attempt_id AND "
            "a.fork_id = NEW.fork_id AND a.host_id = me AND a.closed_boot_ns IS NULL)",
            "this machine is not of this fork",
        )
        + "".join(
            unless_known(column, words)
            for column, words in (("reason", EndReason), ("kept", EndReason), ("outcome", Outcome))
        )
        + refuse(
            f"NEW.avoid_hosts <> OLD.avoid_hosts AND NEW.avoid_hosts !~ {HOST_IDS}",
            "nobody could place it",
        )
        + refuse("NEW.attempts NOT BETWEEN OLD.attempts AND OLD.attempts + 1", "no such number")
        + _FORK_TIMES,
    ),
    Guard(
        "ledger",
        "INSERT",
        "an entry is of a machine's end: charged once and within its lease, topped up to the smallest lease, "
        "or what was left of the grant",
        "a public.attempt%ROWTYPE; f public.fork%ROWTYPE; spent bigint;",
        "SELECT * INTO a FROM public.attempt WHERE attempt_id = NEW.subject_id;\n"
        "SELECT * INTO f FROM public.fork WHERE fork_id = coalesce(a.fork_id, NEW.subject_id);\n"
        + refuse("NEW.run_id <> f.run_id OR NEW.sequence <> 0", "this is of another run")
        + "IF NEW.kind = 'charge' THEN\n"
        + refuse(
            "a.host_id <> me OR a.closed_boot_ns IS NOT NULL OR NEW.pool_micros <> 0 OR NEW.charged_micros < 0 "
            "OR NEW.charged_micros > 2 + a.lease_ns / 3600000000000.0 * a.micros_per_hour",
            "no such machine is charged that",
        )
        + "ELSIF NEW.kind = 'top_up' THEN\n"
        + refuse(
            "a.host_id <> me OR a.closed_boot_ns IS NOT NULL OR NEW.charged_micros <> 0 "
            "OR NEW.granted_micros NOT BETWEEN 0 AND f.smallest_micros",
            "a replacement is topped up to its smallest lease",
        )
        + "ELSIF NEW.kind = 'grant' THEN\n"
        + refuse(
            "a.host_id <> me OR f.role <> 'template' OR NEW.charged_micros <> 0 OR NEW.granted_micros < 0",
            "only who joins a build is granted anything",
        )
        + "ELSIF NEW.kind = 'return' THEN\n"
        + "SELECT coalesce(sum(charged_micros), 0) INTO spent FROM public.ledger\n"
        "WHERE subject_id = f.attempt_id AND kind = 'charge';\n"
        + refuse(
            "f.host_id <> me OR f.attempt_id IS NULL OR NEW.subject_id <> f.fork_id OR NEW.charged_micros <> 0 "
            "OR NEW.pool_micros NOT BETWEEN 0 AND f.grant_micros - spent",
            "only what is left of a grant is returned",
        )
        + "ELSE\n"
        + refuse("true", "this entry is the control plane''s")
        + "END IF;\n",
    ),
    Guard(
        "run",
        "UPDATE",
        "a run's figures are what its entries add up to",
        "pool numeric; granted numeric; charged numeric;",
        "SELECT sum(pool_micros), sum(granted_micros), sum(charged_micros) INTO pool, granted, charged\n"
        "FROM public.ledger WHERE run_id = NEW.run_id;\n"
        + refuse("OLD.state <> 'active'", "this run has ended")
        + refuse(
            "NEW.pool_micros <> pool OR NEW.granted_micros <> granted OR NEW.charged_micros <> charged",
            "these figures are not those of its entries",
        ),
    ),
    Guard(
        "project",
        "UPDATE",
        "a host gives places back, and takes none",
        "",
        refuse("NEW.live_forks > OLD.live_forks", "only the control plane places forks"),
    ),
    Guard(
        "build",
        "UPDATE",
        "what a build came to stands",
        "",
        refuse(
            "OLD.state NOT IN ('queued', 'building', 'verifying') AND (NEW.state <> OLD.state "
            "OR NEW.snapshot_ref IS DISTINCT FROM OLD.snapshot_ref OR NEW.error IS DISTINCT FROM OLD.error "
            "OR NEW.candidate IS DISTINCT FROM OLD.candidate)",
            "this build has ended",
        ),
    ),
    Guard(
        "snapshot",
        "INSERT",
        "what a build came to is the next version of its name, and of what its author defined",
        "b public.build%ROWTYPE; newest integer;",
        "SELECT * INTO b FROM public.build WHERE build_id = NEW.bundle_id;\n"
        "SELECT coalesce(max(version), 0) INTO newest FROM public.snapshot\n"
        "WHERE project_id = NEW.project_id AND name = NEW.name;\n"
        + refuse("b.state NOT IN ('queued', 'building', 'verifying')", "this build has ended")
        + refuse(
            "NEW.version <> newest + 1 OR NEW.ref <> NEW.name || '@' || NEW.version",
            "this is not the next version",
        )
        + refuse(
            f"NEW.restore_key !~ {RESTORE_KEY} OR NEW.deleted_ns IS NOT NULL OR "
            "(NEW.evidence IS JSON OBJECT AND NEW.provenance IS JSON OBJECT) IS NOT TRUE",
            "nobody could read it",
        )
        + "NEW.definition := b.definition;\n",
    ),
)

# When a host's transaction is whole: an entry without what it is of would keep the control plane from booking its own,
# and one without its run's figures every other host.
BOOKED = (
    "CREATE OR REPLACE FUNCTION public.promigence_booked() RETURNS trigger LANGUAGE plpgsql "
    "SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$\n"
    "DECLARE r public.run%ROWTYPE; granted numeric; charged numeric;\n"
    "BEGIN\n"
    + refuse(
        "CASE NEW.kind WHEN 'return' THEN NOT EXISTS (SELECT FROM public.fork "
        "WHERE fork_id = NEW.subject_id AND state = 'ended') ELSE NOT EXISTS (SELECT FROM "
        "public.attempt WHERE attempt_id = NEW.subject_id AND closed_boot_ns IS NOT NULL) END",
        "this entry is of an end that was none",
    )
    + "IF NEW.kind = 'charge' THEN\n"
    "SELECT * INTO r FROM public.run WHERE run_id = NEW.run_id;\n"
    "SELECT sum(granted_micros), sum(charged_micros) INTO granted, charged\n"
    "FROM public.ledger WHERE run_id = NEW.run_id;\n"
    + refuse(
        "r.granted_micros <> granted OR r.charged_micros <> charged",
        "these figures are not those of its entries",
    )
    + "END IF;\nRETURN NULL;\nEND $$"
)
