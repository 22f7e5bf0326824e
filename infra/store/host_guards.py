"""What holds of a host's writes that no privilege and no policy can say: the row before beside the row
after, and money.

Each is a trigger that fires for hosts' logins alone. It runs with the owner's rights, for it looks at rows that the
host does not see; it takes no argument, names every table by its schema, and nobody can call it otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


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


GUARDS: tuple[Guard, ...] = (
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
        ),
    ),
    Guard(
        "fork",
        "INSERT",
        "forks join the build whose template lived here, and nothing else",
        "",
        refuse(
            "NOT EXISTS (SELECT FROM public.build b JOIN public.attempt a "
            "ON a.fork_id = b.template_fork_id WHERE b.run_id = NEW.run_id AND a.host_id = me "
            "AND b.state IN ('queued', 'building', 'verifying'))",
            "no fork joins a run that is not built here",
        ),
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
        ),
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
)
