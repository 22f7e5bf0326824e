"""The list, goes on: what a run's own rule moves when it stops the run, and what is told of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

EVENTS = ("tests/contract/test_store_events.py", "-k", "sqlite and not one_order")
SHARE = ("tests/flow/test_stop_when.py", "-k", "exactly")

RUN = "app/domain/run.py"
ENDING = "infra/store/ending.py"
SETTLING = "infra/store/settling.py"
EVENT_LOG = "infra/store/event_log.py"

EVENT_MUTANTS = (
    Mutant(
        RUN,
        "return env_failed >= Decimal(",
        "return env_failed > Decimal(",
        "a share that is reached is broken",
        SHARE,
    ),
    Mutant(
        RUN,
        "Decimal(str(self.env_failed_share))",
        "self.env_failed_share",
        "seven of a hundred are 0.07",
        SHARE,
    ),
    Mutant(
        ENDING,
        "[returned(fork) for fork in waited]",
        "[]",
        "who ends while it waits gives its grant back",
        EVENTS,
    ),
    Mutant(
        ENDING,
        "let_go(at, run, [*waiting, *also], now_ns)",
        "let_go(at, run, [*waiting], now_ns)",
        "whom the rule ends in the queue gives all back too",
        EVENTS,
    ),
    Mutant(
        SETTLING,
        "give_back(at, [*waited, *stopped])",
        "give_back(at, waited)",
        "whom the rule ends gives its room back",
        EVENTS,
    ),
    Mutant(
        SETTLING,
        "[returned(fork) for fork in stopped]",
        "[]",
        "whom the rule ends gives its grant back",
        EVENTS,
    ),
    Mutant(
        EVENT_LOG,
        "count(number - counts[run_id] + 1)",
        "count(number - counts[run_id])",
        "the first event is 1",
        EVENTS,
    ),
)
