"""All that may happen in the cluster of `world.py`: each event takes a number that decides the rest.

What is worth knowing of an event is counted in `World.reached`; `TRANSITIONS` is what a whole proof must have seen.
"""

from __future__ import annotations

from collections.abc import Callable

from app.domain.fork import EndReason, ForkState
from app.domain.ledger import START_WINDOW_NS
from app.domain.rates import Basis, Rate
from tests.ledger import acts
from tests.ledger.world import Chance, Machine, World

# At none but the second is a second a whole number of micro-dollars; the last is 5 USD an hour, and one off.
RATES = (50_000, 36_000, 7, 4_999_999)
MOST_RUNS = 3
WAITS_NS = (3, 400_000_001, 2_700_000_013, 9_999_999_999, 31_000_000_007, 120_300_000_001)
TASK_ENDS = [
    EndReason.COMMAND_PASSED,
    EndReason.COMMAND_FAILED,
    EndReason.COMMAND_TIMED_OUT,
    EndReason.COMMAND_SHUT_DOWN,
    EndReason.GUEST_FAULT_BY_TASK,
    EndReason.RELEASED_PASSED,
    EndReason.RELEASED_FAILED,
    EndReason.HOLD_EXPIRED,
]
# What a run, or its own rule, or the caller of a held fork may ask.
WISHES = (EndReason.RELEASED, EndReason.CANCELLED, EndReason.STOPPED_BY_RULE)


def nothing(world: World, chance: Chance) -> None:
    """No event: what others shrink to."""


def start(world: World, chance: Chance) -> None:
    """A caller prices and starts a step; the API may die before the rows are committed, or before it rings."""
    if len(world.books.runs) == MOST_RUNS:
        return
    rate = Rate(RATES[chance.below(4)], Basis.COMMITTED, "card")
    is_build = chance.one_in(4)
    timing = acts.timing(chance, retries=0 if is_build else chance.below(3))
    count = 1 if is_build else 1 + chance.below(5)
    cap = acts.cap_of(world, chance, count, timing, rate)
    if cap is None:
        return
    fate = chance.below(8)
    if fate == 6:
        world.reached["the API died before its commit"] += 1
        return
    run, forks = acts.run_of(world, cap, count, timing, rate, is_build=is_build)
    world.books.start(run, forks, world.database_ns)
    world.reached["a build started" if is_build else "a run started"] += 1
    if fate == 7:
        world.reached["a bell was lost"] += 1
        return
    world.rung.append(run.run_id)


def place(world: World, chance: Chance) -> None:
    """What waits is placed, and taken off hosts that are silent."""
    alive = [host.name for host in world.hosts if host.acts]
    for fork in world.books.forks.values():
        if fork.state is ForkState.QUEUED and fork.host not in alive:
            fork.host = chance.pick(alive)


def settle(world: World, chance: Chance) -> None:
    """The control plane sees what hosts left to it, of some runs; it may have been away for long."""
    for run_id in world.books.runs:
        if not chance.one_in(4):
            acts.settle(world, run_id)


def look_at_the_clock(world: World, chance: Chance) -> None:
    """A worker reads its host's clock; it may be a while until it opens an attempt."""
    host = world.hosts[chance.below(3)]
    if host.works and not host.suspended:
        host.clock_read_ns = world.boot_ns(host)


def open_attempt(world: World, chance: Chance) -> None:
    """A worker claims what waits for it, and mostly goes on at once."""
    host = chance.pick([host for host in world.hosts if host.acts and world.waits_on(host)])
    if host is None:
        return
    read_ns = world.boot_ns(host) if host.clock_read_ns is None else host.clock_read_ns
    host.clock_read_ns = None
    attempt = acts.opened(world, host, read_ns)
    if attempt is None:
        return
    world.reached["a replacement opened" if attempt.number > 1 else "opened"] += 1
    machine = Machine(attempt.deadline_boot_ns, read_ns + START_WINDOW_NS)
    world.machines[attempt.attempt_id] = machine
    world.rung.append(attempt.attempt_id)
    if not chance.one_in(6):
        acts.spawn(world, host, attempt.attempt_id)


def spawn_late(world: World, chance: Chance) -> None:
    """A worker that was held up after its claim goes on."""
    host = chance.pick([host for host in world.hosts if host.works and not host.suspended])
    if host is not None:
        for attempt in acts.held(world, host):
            acts.spawn(world, host, attempt.attempt_id)


def ready(world: World, chance: Chance) -> None:
    attempt = acts.pick_living(world, chance)
    if attempt is None or world.books.forks[attempt.fork_id].state is not ForkState.RESTORING:
        return
    ready_ns = world.boot_ns(world.host(attempt))
    world.books.ready(attempt.attempt_id, attempt.claim, ready_ns, world.database_ns)
    attempt.intent = chance.one_in(2)
    world.reached["ready"] += 1


def finish(world: World, chance: Chance) -> None:
    """The fork's work ends, and its worker ends the machine: the closing is on its way."""
    attempt = acts.pick_living(world, chance)
    if attempt is None:
        return
    fork = world.books.forks[attempt.fork_id]
    acts.kill(world, attempt)
    if fork.template:
        joining = acts.joining(world, attempt, chance)
        acts.send(world, attempt, EndReason.COMMAND_PASSED, joining=joining)
    else:
        acts.send(world, attempt, fork.stop_asked or chance.pick(TASK_ENDS))


def fail(world: World, chance: Chance) -> None:
    """The environment fails a machine: its guest dies, or its keeper and it with it; its worker learns of it later."""
    attempt = acts.pick_living(world, chance)
    if attempt is not None:
        acts.kill(world, attempt)
        world.reached["a machine failed"] += 1


def attend(world: World, chance: Chance) -> None:
    """A worker's look at its machines: leases to their keepers, wishes obeyed, deaths reported."""
    host = chance.pick([host for host in world.hosts if host.acts])
    if host is not None:
        for attempt in acts.held(world, host):
            acts.attend(world, host, attempt)


def crash(world: World, chance: Chance) -> None:
    """A worker dies: its keepers and what it sent go on."""
    host = world.hosts[chance.below(3)]
    if host.works:
        host.works, host.clock_read_ns = False, None
        world.reached["a worker crashed"] += 1


def recover(world: World, chance: Chance) -> None:
    """Another worker begins where one has died."""
    host = chance.pick([host for host in world.hosts if not host.works])
    if host is not None:
        acts.recover(world, host)


def suspend(world: World, chance: Chance) -> None:
    host = world.hosts[chance.below(3)]
    if not host.suspended:
        host.suspended, host.frozen_boot_ns = True, world.boot_ns(host)
    world.reached["a host was suspended"] += 1


def wake(world: World, chance: Chance) -> None:
    host = chance.pick([host for host in world.hosts if host.suspended])
    if host is not None:
        host.suspended = False
        acts.keepers_act(world, host, world.boot_ns(host))


def cut_off(world: World, chance: Chance) -> None:
    """A host can neither read the database nor write to it."""
    world.hosts[chance.below(3)].partitioned = True
    world.reached["a host was cut off"] += 1


def heal(world: World, chance: Chance) -> None:
    host = chance.pick([host for host in world.hosts if host.partitioned])
    if host is not None:
        host.partitioned = False


def lose_power(world: World, chance: Chance) -> None:
    """A host goes down with all that runs on it, and comes up with a clock that begins anew."""
    host = world.hosts[chance.below(3)]
    for attempt in world.books.attempts.values():
        machine = world.machines[attempt.attempt_id]
        if attempt.host == host.name and machine.lives:
            # A suspended one did not run any more.
            gone_ns = host.frozen_boot_ns if host.suspended else world.boot_ns(host)
            machine.ended_boot_ns, machine.witnessed = gone_ns, False
            # Its keeper may have been on its way already; nobody is left to record how late that was.
            machine.late_ns = max(0, gone_ns - machine.deadline_boot_ns)
            world.reached["a machine went down with its host"] += 1
        machine.prevented = machine.prevented or attempt.host == host.name
    host.boot, host.offset_ns = host.boot + 1, -world.now_ns
    host.works, host.suspended, host.clock_read_ns = False, False, None


def slow_down(world: World, chance: Chance) -> None:
    """From now on a host's keepers act late, or in time again."""
    host = world.hosts[chance.below(3)]
    host.slow_ns = chance.below(3) * 1_300_000_007
    acts.keepers_act(world, host, world.boot_ns(host))


def deliver(world: World, chance: Chance) -> None:
    """A closing arrives, the oldest mostly; it may come again."""
    if not world.messages:
        return
    world.messages.rotate(-chance.below(2))
    message = world.messages[0] if chance.one_in(4) else world.messages.popleft()
    acts.deliver(world, message)


def lose_message(world: World, chance: Chance) -> None:
    if world.messages:
        world.messages.popleft()
        world.reached["a message was lost"] += 1


def ask_stop(world: World, chance: Chance) -> None:
    run_id = chance.pick(list(world.books.runs))
    if run_id is not None:
        world.books.ask_stop(run_id, WISHES[chance.below(len(WISHES))])
        world.to_stop.setdefault(run_id, len(world.books.of_run(run_id)))


def expire_queued(world: World, chance: Chance) -> None:
    run_id = chance.pick(list(world.books.runs))
    if run_id is not None:
        world.books.expire_queued(run_id)


def bill_reads(world: World, chance: Chance) -> None:
    """One of the billing workers begins a tick: it reads now, and writes whenever it comes to it."""
    now_ns = world.database_ns
    tasks = world.bills[chance.below(2)]
    tasks.clear()
    for attempt in world.books.attempts.values():
        if attempt.is_open:
            tasks.append(acts.noting(world, attempt, now_ns))
    tasks.extend(acts.sharing(world, run_id) for run_id in world.books.sharable())
    tasks.extend(acts.closing(world, attempt_id) for attempt_id in world.books.overdue(now_ns))


def bill_writes(world: World, chance: Chance) -> None:
    """It goes on with its tick, by some writes or to its end; or it has died, and the next one begins anew."""
    number = chance.below(2)
    tasks, others = world.bills[number], world.bills[1 - number]
    if tasks and others:
        world.reached["two billing workers at once"] += 1
    for _ in range(1 + chance.below(4) * 3):
        if tasks:
            tasks.popleft()()


def wait(world: World, chance: Chance) -> None:
    """Time passes; keepers act when theirs has come."""
    before_ns = world.now_ns
    acts.say_that_they_live(world)
    world.now_ns += WAITS_NS[chance.below(len(WAITS_NS))]
    for host in world.hosts:
        acts.keepers_act(world, host, host.boot_ns(before_ns))
    acts.say_that_they_live(world)


EVENTS: dict[str, Callable[[World, Chance], None]] = {
    event.__name__: event
    for event in (
        nothing,
        start,
        place,
        settle,
        look_at_the_clock,
        open_attempt,
        spawn_late,
        ready,
        finish,
        fail,
        attend,
        crash,
        recover,
        suspend,
        wake,
        cut_off,
        heal,
        lose_power,
        slow_down,
        deliver,
        lose_message,
        ask_stop,
        expire_queued,
        bill_reads,
        bill_writes,
        wait,
    )
}

# What a proof is worth: all of these have happened in it.
TRANSITIONS = frozenset(
    {
        "cap_too_small",
        "the API died before its commit",
        "a bell was lost",
        "a run started",
        "a build started",
        "opened",
        "a replacement opened",
        "topped up before it opened",
        "topped up for a replacement",
        "a replacement could not be funded",
        "born too late",
        "ready",
        "a machine failed",
        "a keeper killed",
        "a keeper killed late",
        "a host was suspended",
        "a host was cut off",
        "a machine went down with its host",
        "an end after another boot",
        "a worker crashed",
        "adopted",
        "a message was lost",
        "a stale message was refused",
        "forks joined",
        "forks could not join",
        "forks came too late to join",
        "an extension reached a keeper",
        "a silent host was not extended",
        "shared evenly",
        "shared soonest first",
        "a meter was read again",
        "two billing workers at once",
        "closed by time",
        "closed by another meanwhile",
        "a run ended",
        *(f"ended: {reason.value}" for reason in EndReason),
    }
)


def wind_down(world: World) -> None:
    """All works again, and whoever waits is asked to stop: every run comes to its end."""
    for host in world.hosts:
        host.suspended, host.partitioned, host.slow_ns = False, False, 0
        acts.keepers_act(world, host, world.boot_ns(host))
        acts.recover(world, host)
    _deliver_all(world)
    for run_id in world.books.runs:
        world.books.ask_stop(run_id, EndReason.CANCELLED)
    for attempt in [each for host in world.hosts for each in acts.held(world, host)]:
        acts.spawn(world, world.host(attempt), attempt.attempt_id)
        acts.attend(world, world.host(attempt), attempt)
    _deliver_all(world)
    for run_id in world.books.runs:
        acts.settle(world, run_id)
    world.reached.update(
        f"ended: {fork.reason.value}" for fork in world.books.forks.values() if fork.reason
    )


def _deliver_all(world: World) -> None:
    while world.messages:
        acts.deliver(world, world.messages.popleft())
