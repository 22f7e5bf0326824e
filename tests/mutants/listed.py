"""The list: one text replaced by another, the law that breaks, and the tests that must notice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PROOF = ("tests/unit/test_ledger_laws.py",)
LEDGER = ("tests/unit/test_ledger.py",)
STORE = ("tests/contract/test_store_money.py", "-k", "sqlite and not interleaving")
BELLS = ("tests/flow/test_bells_after_rows.py",)
SCHEMA = ("tests/contract/test_store_schema.py", "-k", "sqlite and refused")

MONEY = "app/domain/money.py"
DOMAIN = "app/domain/ledger.py"
QUOTE = "app/domain/quote.py"
BOOKING = "infra/store/money.py"
CLOSING = "infra/store/closing.py"
ATTEMPTS = "infra/store/attempts.py"
SETTLING = "infra/store/settling.py"
METERS = "infra/store/meters.py"
FENCE = "infra/store/fence.py"
STARTING = "app/flow/start.py"
TABLES = "infra/store/migrations/versions/0001_the_first_tables.py"

LEDGER_MUTANTS = (
    Mutant(
        MONEY,
        "return -(-duration_ns * micros_per_hour // NS_PER_HOUR)",
        "return duration_ns * micros_per_hour // NS_PER_HOUR",
        "5: rounded up",
        PROOF,
    ),
    Mutant(
        MONEY,
        "return -(-duration_ns * micros_per_hour // NS_PER_HOUR)",
        "return duration_ns * micros_per_hour // NS_PER_HOUR + 1",
        "5: by less than one",
        PROOF,
    ),
    Mutant(
        MONEY,
        "return micros * NS_PER_HOUR // micros_per_hour",
        "return -(-micros * NS_PER_HOUR // micros_per_hour)",
        "8: a lease costs no more than its grant",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "total = cost_micros(min(max(lived_ns, 0), lease_ns), micros_per_hour)",
        "total = cost_micros(NS_PER_SECOND, micros_per_hour) * -(-min(max(lived_ns, 0), lease_ns) // NS_PER_SECOND)",
        "5: once an attempt, never per tick",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "total = cost_micros(min(max(lived_ns, 0), lease_ns), micros_per_hour)",
        "total = cost_micros(max(lived_ns, 0), micros_per_hour)",
        "1: a late kill is charged up to the lease",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return Split(total, verification, total - verification, 0)",
        "return Split(total, verification, total, 0)",
        "4: the parts of a charge are the whole",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return Split(total, 0, 0, total)",
        "return Split(total, 0, 0, total - 1)",
        "4: also where the environment failed",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "min(ready_after_ns, lived_ns)",
        "max(ready_after_ns, lived_ns)",
        "verification ends when the fork is ready",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "    share = budget_micros // len(worsts_micros)",
        "    share = -(-budget_micros // len(worsts_micros))",
        "1: grants within the budget",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return tuple(min(share, worst) for worst in worsts_micros)",
        "return tuple(max(share, worst) for worst in worsts_micros)",
        "1: no grant above a fork's worst case",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return grant_micros >= smallest_micros",
        "return grant_micros > 0",
        "6: no machine starts unfunded",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return grant(lacking) if lacking <= pool_micros else None",
        "return grant(lacking)",
        "1: no top-up above the pool",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return grant(lacking) if lacking <= pool_micros else None",
        "return grant(lacking) if lacking < pool_micros else None",
        "a replacement that can just be paid for starts",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "return min(affordable_ns(grant_micros, micros_per_hour), worst_attempt_ns)",
        "return max(affordable_ns(grant_micros, micros_per_hour), worst_attempt_ns)",
        "8: a lease is what its grant funds",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return min(affordable_ns(grant_micros, micros_per_hour), worst_attempt_ns)",
        "return worst_attempt_ns",
        "8: a lease comes from the grant, not from the worst case",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return Settled(charged, NOTHING, give_back(rest), False, 0, worst_micros)",
        "return Settled(charged, NOTHING, NOTHING, False, 0, worst_micros)",
        "1: what an ended fork held is the pool's again",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "    rest = grant_micros - total\n",
        "    rest = grant_micros\n",
        "1: what is charged is held no more",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "funded = rest + topped_up.granted_micros",
        "funded = rest",
        "1: a top-up is the fork's",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "    if sum(grants) > pool_micros:",
        "    if len(grants) > pool_micros:",
        "1: nobody joins on more than the pool has",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "for need in wanting) <= pool_micros:",
        "for need in wanting) <= 2 * pool_micros:",
        "everybody gets a worthwhile extension, or some do",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "    return _soonest_first(pool_micros, wanting, smallest)\n",
        "    return {}\n",
        "what cannot be divided evenly is used all the same",
        ("tests/unit/test_ledger_spent.py",),
    ),
    Mutant(
        DOMAIN,
        "        if part <= left:\n",
        "        if part < left:\n",
        "sharing leaves less than one extension",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "        if part <= left:\n",
        "        if left > 0:\n",
        "1: no extension above the pool",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "        part = min(need.lacking_micros, left // (len(by_lack) - position))\n        left -= part\n",
        "        part = min(need.lacking_micros, left)\n",
        "1: no more is shared than there is",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "and now_ns < self.lease_ends_ns)",
        "and now_ns <= self.lease_ends_ns)",
        "no money for a machine whose lease is over",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "(self.host_alive and now_ns < self.lease_ends_ns)",
        "now_ns < self.lease_ends_ns",
        "no money for a machine whose host cannot be told",
        LEDGER,
    ),
    Mutant(
        DOMAIN,
        "return age_ns > START_WINDOW_NS + lease_ns + CLOSE_MARGIN_NS",
        "return age_ns > START_WINDOW_NS + lease_ns",
        "8: the margin before a close by time",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "return age_ns > START_WINDOW_NS + lease_ns + CLOSE_MARGIN_NS",
        "return age_ns > lease_ns + CLOSE_MARGIN_NS",
        "8: the window in which a machine may still start",
        PROOF,
    ),
    Mutant(
        DOMAIN,
        "if min(parts) < 0 or sum(parts) != self.budget_micros:",
        "if sum(parts) != self.budget_micros:",
        "1: no part below 0",
        LEDGER,
    ),
    Mutant(
        QUOTE,
        "    neediest = max(cost_micros(",
        "    neediest = min(cost_micros(",
        "6: the smallest cap funds the neediest fork",
        LEDGER,
    ),
    Mutant(
        QUOTE,
        "return min(timing.allowance_ns + MINIMUM_LEASE_NS, timing.attempt_ns)",
        "return min(timing.allowance_ns, timing.attempt_ns)",
        "6: verification and the smallest useful time",
        PROOF,
    ),
    Mutant(
        BOOKING,
        "pool_micros=runs.c.pool_micros + move.pool_micros",
        "pool_micros=runs.c.pool_micros",
        "1: what goes to a grant is taken from the pool",
        STORE,
    ),
    Mutant(
        BOOKING,
        "    at.execute(insert(ledger), [_row(run, entry, now_ns) for entry in moving])\n",
        "",
        "1: every move has its entry",
        STORE,
    ),
    Mutant(
        BOOKING,
        "return 0 if last is None else int(last) + 1",
        "return 0",
        "nothing is booked twice",
        STORE,
    ),
    Mutant(
        TABLES,
        'sa.CheckConstraint("pool_micros >= 0"',
        'sa.CheckConstraint("pool_micros >= -1"',
        "1: the database refuses a pool below 0",
        SCHEMA,
    ),
    Mutant(
        TABLES,
        '"budget_micros = pool_micros + granted_micros + charged_micros"',
        '"budget_micros >= pool_micros + granted_micros"',
        "1: the database refuses parts that are not the budget",
        SCHEMA,
    ),
    Mutant(
        TABLES,
        'sa.PrimaryKeyConstraint("subject_id", "kind", "sequence", name="pk_ledger")',
        'sa.PrimaryKeyConstraint("subject_id", "kind", "sequence", "booked_ns", name="pk_ledger")',
        "the database refuses what is booked twice",
        STORE,
    ),
    Mutant(
        CLOSING,
        "        Entry(ending.fork.fork_id, LedgerKind.RETURN, settled.returned),\n",
        "",
        "1: a lease that is over is returned",
        STORE,
    ),
    Mutant(
        CLOSING,
        "        charged_micros=split.total_micros,\n",
        "        charged_micros=0,\n",
        "1: what a run was charged is what its machines cost",
        STORE,
    ),
    Mutant(
        CLOSING,
        "elif ledger.may_close_by_time(age_ns, attempt.lease_ns):",
        "elif attempt.lease_ns:",
        "8: nobody closes by guess",
        STORE,
    ),
    Mutant(
        CLOSING,
        "if closing.boot_id in (None, attempt.boot_id):",
        "if attempt.boot_id:",
        "2: readings of two boots are not compared",
        STORE,
    ),
    Mutant(
        ATTEMPTS,
        "lease_ns=ledger.lease_ns(fork.grant_micros, rate, fork.worst_attempt_ns),",
        "lease_ns=fork.worst_attempt_ns,",
        "8: a lease comes from the grant",
        STORE,
    ),
    Mutant(
        SETTLING,
        "grant_micros=fork.grant_micros + move.granted_micros",
        "grant_micros=fork.grant_micros",
        "1: a top-up before a start is the fork's",
        STORE,
    ),
    Mutant(
        METERS,
        "ledger.lease_ns(each.need.grant_micros + part_micros, rate, each.worst_attempt_ns)",
        "ledger.lease_ns(each.need.grant_micros + 2 * part_micros, rate, each.worst_attempt_ns)",
        "8: an extension is what its grant funds",
        STORE,
    ),
    Mutant(
        METERS,
        "    forks.c.role == Role.FORK,\n",
        "",
        "a template is not fed what its verification forks are promised",
        STORE,
    ),
    Mutant(
        METERS,
        "host_alive=bool(machine.host_alive)",
        "host_alive=True",
        "no lease grows on a silent host",
        STORE,
    ),
    Mutant(
        CLOSING,
        "    if more_forks and fork.stop_asked is not None:\n",
        "    if False:\n",
        "nobody joins a run that is to stop",
        STORE,
    ),
    Mutant(
        FENCE,
        "    if attempt.claim != claimed.attempt.claim:\n        raise StaleClaim(attempt_id)\n",
        "",
        "8: who lost a machine does not close it",
        ("tests/contract/test_store_money.py", "-k", "interleaving and sqlite-5"),
    ),
    Mutant(
        STARTING,
        "        ports.runs.start(run, tuple(_forks(run, step)), receipt(answer))\n        ports.bells.place()\n",
        "        ports.bells.place()\n        ports.runs.start(run, tuple(_forks(run, step)), receipt(answer))\n",
        "7: nothing is rung before its rows",
        BELLS,
    ),
)
