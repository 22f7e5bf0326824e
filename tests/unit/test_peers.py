"""Who of a host's worker processes is taken for dead, and who is ended before that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.domain.worker import CLAIM_NS, Worker
from infra.stack.process import Process
from workers.peers import SILENT_LOOKS, Peers

ME = Worker("claim_me", "host1", "boot", 1, 100, "1.0")
OTHER = replace(ME, claim="claim_other", pid=2)
SILENT = replace(OTHER, heartbeat_age_ns=CLAIM_NS + 1)


class Rows:
    """`Workers` of one host."""

    def __init__(self, *workers: Worker) -> None:
        self.workers = {each.claim: each for each in workers}

    def begin(self, worker: Worker) -> None:
        self.workers[worker.claim] = worker

    def beat(self, claim: str) -> bool:
        return self.workers[claim].draining

    def on(self, host_id: str) -> tuple[Worker, ...]:
        return tuple(each for each in self.workers.values() if each.host_id == host_id)

    def claims(self) -> frozenset[str]:
        return frozenset(self.workers)

    def drain(self, host_id: str) -> tuple[Worker, ...]:
        return self.on(host_id)

    def end(self, claim: str) -> None:
        self.workers.pop(claim, None)


class Kernel:
    """Processes by number; one that is stubborn cannot be ended."""

    def __init__(self, *pids: int, stubborn: Iterable[int] = ()) -> None:
        self.pids, self.stubborn = set(pids), set(stubborn)

    def lives(self, process: Process) -> bool:
        return process.pid in self.pids

    def end(self, process: Process) -> bool:
        self.pids -= {process.pid} - self.stubborn
        return process.pid not in self.pids


def peers(rows: Rows, kernel: Kernel) -> Peers:
    return Peers(rows, ME.host_id, ME.claim, kernel.lives, kernel.end)


def test_a_process_that_lives_keeps_its_machines() -> None:
    rows = Rows(ME, OTHER)
    assert peers(rows, Kernel(1, 2)).living() == {ME.claim, OTHER.claim}
    assert rows.claims() == {ME.claim, OTHER.claim}


def test_of_a_process_that_is_gone_the_row_goes_too() -> None:
    rows = Rows(ME, OTHER)
    assert peers(rows, Kernel(1)).living() == {ME.claim}
    assert rows.claims() == {ME.claim}


def test_a_process_without_a_row_is_gone() -> None:
    assert peers(Rows(), Kernel(1, 2)).living() == {ME.claim}


def test_a_silent_process_is_ended_before_it_is_taken_for_dead() -> None:
    rows, kernel = Rows(ME, SILENT), Kernel(1, 2)
    looking = peers(rows, kernel)
    for _ in range(SILENT_LOOKS - 1):
        assert looking.living() == {ME.claim, OTHER.claim}
    assert kernel.pids == {1, 2}
    assert looking.living() == {ME.claim}
    assert kernel.pids == {1}


def test_a_process_that_speaks_between_two_looks_was_not_frozen() -> None:
    """A whole host that slept wakes with old heartbeats everywhere."""
    rows, kernel = Rows(ME, SILENT), Kernel(1, 2)
    looking = peers(rows, kernel)
    for heard in (SILENT, SILENT, OTHER, SILENT, SILENT):
        rows.begin(heard)
        assert looking.living() == {ME.claim, OTHER.claim}
    assert kernel.pids == {1, 2}


def test_who_cannot_be_ended_keeps_its_machines() -> None:
    rows, kernel = Rows(ME, SILENT), Kernel(1, 2, stubborn={2})
    looking = peers(rows, kernel)
    for _ in range(2 * SILENT_LOOKS):
        assert looking.living() == {ME.claim, OTHER.claim}
    assert rows.claims() == {ME.claim, OTHER.claim}


def test_workers_of_other_hosts_are_none_of_its_business() -> None:
    rows = Rows(ME, replace(OTHER, host_id="host2"))
    assert peers(rows, Kernel(1)).living() == {ME.claim}
    assert OTHER.claim in rows.claims()
