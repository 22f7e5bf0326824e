"""What workers, keepers and messages of the simulated cluster do when an event makes them."""

from __future__ import annotations

from app.domain import ledger
from app.domain.fork import EndReason, ForkState
from app.domain.ledger import Purse
from app.domain.machine import Shape
from app.domain.money import NS_PER_SECOND, cost_micros
from app.domain.quote import Priced, Timing, smallest_cap_micros, smallest_lease_ns
from app.domain.rates import Rate
from app.errors import Conflict, StaleClaim
from tests.ledger.books import Attempt, End, Fork, Run
from tests.ledger.world import Chance, Host, Machine, Message, Task, World

KILL_MARGIN_NS = 150_000_000
# By how much a lease must outlast a death at its deadline to show that an extension did not arrive.
EXTENSION_SEEN_NS = NS_PER_SECOND
SHAPE = Shape(1, 512, 4)


def timing(chance: Chance, retries: int) -> Timing:
    return Timing(
        command_ns=(20 + 45 * chance.below(8)) * NS_PER_SECOND,
        grade_ns=chance.below(2) * 7 * NS_PER_SECOND,
        test_ns=chance.below(3) * 11 * NS_PER_SECOND,
        environment_retries=retries,
        rerun_started=chance.one_in(2),
    )


def cap_of(world: World, chance: Chance, count: int, timing: Timing, rate: Rate) -> int | None:
    """A cap that mostly binds; None where it was too small and refused."""
    smallest_ns = min(60 * NS_PER_SECOND + timing.test_ns, timing.attempt_ns)
    smallest = count * cost_micros(smallest_ns, rate.micros_per_hour)
    cap = max(1, smallest * (90 + chance.below(160)) // 100)
    named = smallest_cap_micros((Priced("s@1", count, SHAPE, timing),), rate)
    if cap < named:
        world.refusals.append((cap, named, smallest))
        world.reached["cap_too_small"] += 1
        return None
    world.smallest_caps[f"run{len(world.books.runs)}"] = smallest
    return cap


def run_of(
    world: World, cap: int, count: int, timing: Timing, rate: Rate, *, is_build: bool
) -> tuple[Run, list[Fork]]:
    """A step's run with equal grants; a build's has one template, which holds what its smallest lease costs."""
    run_id = f"run{len(world.books.runs)}"
    worst = timing.worst_micros(rate.micros_per_hour)
    budget = min(cap, count * worst)
    smallest_ns = smallest_lease_ns(timing)
    smallest = cost_micros(smallest_ns, rate.micros_per_hour)
    grants = (smallest,) if is_build else ledger.equal_grants(budget, (worst,) * count)
    made = Run(
        run_id=run_id,
        cap_micros=cap,
        rate=rate.micros_per_hour,
        purse=Purse(budget, budget - sum(grants), sum(grants), 0),
        requested=0 if is_build else count,
        environment_retries=timing.environment_retries,
        rerun_started=timing.rerun_started,
        smallest_lease_ns=smallest_ns,
    )
    return made, [
        Fork(f"{run_id}.{n}", run_id, n, grant, worst, timing.attempt_ns, smallest, is_build)
        for n, grant in enumerate(grants)
    ]


def opened(world: World, host: Host, read_ns: int) -> Attempt | None:
    """A template by its id where one waits here, else the next fork."""
    named = f"att{len(world.books.attempts)}"
    how = (host.claim, host.boot_id, read_ns, named, world.database_ns)
    for fork in world.books.forks.values():
        if fork.template and fork.host == host.name and fork.state is ForkState.QUEUED:
            return world.books.open_template(fork, *how)
    return world.books.open_next(host.name, *how)


def spawn(world: World, host: Host, attempt_id: str) -> None:
    """A keeper starts the machine: not after its window, and not past its deadline."""
    machine, boot_ns = world.machines[attempt_id], world.boot_ns(host)
    if machine.born_boot_ns is not None or machine.prevented:
        return
    if boot_ns > machine.start_by_boot_ns or boot_ns >= machine.deadline_boot_ns - KILL_MARGIN_NS:
        machine.prevented = True
        world.reached["born too late"] += 1
        return
    machine.born_boot_ns = boot_ns


def held(world: World, host: Host) -> list[Attempt]:
    return [each for each in world.books.open_on(host.name) if each.claim == host.claim]


def pick_living(world: World, chance: Chance) -> Attempt | None:
    """An attempt whose machine lives and whose worker acts."""
    return chance.pick(
        [
            attempt
            for host in world.hosts
            if host.acts
            for attempt in held(world, host)
            if world.machines[attempt.attempt_id].lives
        ]
    )


def joining(world: World, attempt: Attempt, chance: Chance) -> tuple[Fork, ...]:
    """Verification forks on half the pool, or on more than it has; their parts may be too small to start on."""
    run, template = world.books.runs[attempt.run_id], world.books.forks[attempt.fork_id]
    count, more = 1 + chance.below(3), chance.one_in(4)
    part = run.purse.pool_micros // (2 * count) + (2 * template.grant_micros if more else 0)
    worst, worst_ns, smallest = part * 2, template.worst_attempt_ns, template.smallest_micros
    return tuple(
        Fork(f"{run.run_id}.{n}", run.run_id, n, part, worst, worst_ns, smallest)
        for n in range(1, count + 1)
    )


def recover(world: World, host: Host) -> None:
    """A new worker takes over what the one before it held; a machine on its way is not born any more."""
    if host.works or host.suspended or host.partitioned:
        return
    host.worker, host.works = host.worker + 1, True
    for attempt in world.books.open_on(host.name):
        world.books.adopt(attempt.attempt_id, host.claim)
        if world.machines[attempt.attempt_id].born_boot_ns is None:
            world.machines[attempt.attempt_id].prevented = True
        attend(world, host, attempt)
        world.reached["adopted"] += 1


def attend(world: World, host: Host, attempt: Attempt) -> None:
    machine = world.machines[attempt.attempt_id]
    fork = world.books.forks[attempt.fork_id]
    if machine.lives and machine.deadline_boot_ns < attempt.deadline_boot_ns:
        machine.deadline_boot_ns = attempt.deadline_boot_ns
        world.reached["an extension reached a keeper"] += 1
    if machine.lives and fork.stop_asked is not None:
        kill(world, attempt)
    if machine.lives or (machine.born_boot_ns is None and not machine.prevented):
        return
    if any((m.attempt_id, m.claim) == (attempt.attempt_id, host.claim) for m in world.messages):
        return
    then = _end_of(world, attempt, machine)
    send(world, attempt, then, failed=then in (None, EndReason.ENVIRONMENT_FAILED))


def _end_of(world: World, attempt: Attempt, machine: Machine) -> EndReason | None:
    """Why a fork ends whose machine is found dead; None if it goes on with another."""
    fork, run = world.books.forks[attempt.fork_id], world.books.runs[attempt.run_id]
    if fork.stop_asked is not None:
        return fork.stop_asked
    if machine.at_deadline and attempt.lease_ns < fork.worst_attempt_ns:
        assert machine.ended_boot_ns is not None
        extended = attempt.deadline_boot_ns > machine.ended_boot_ns + EXTENSION_SEEN_NS
        return EndReason.NOT_RENEWED if extended else EndReason.RUN_EXHAUSTED
    again = attempt.number <= run.environment_retries and not fork.template
    if again and (not attempt.intent or run.rerun_started):
        return None
    return EndReason.ENVIRONMENT_FAILED


def send(
    world: World,
    attempt: Attempt,
    then: EndReason | None,
    *,
    failed: bool = False,
    joining: tuple[Fork, ...] = (),
) -> None:
    """A closing with what its keeper saw; where nobody saw it, with the clock that the host has now."""
    machine, host = world.machines[attempt.attempt_id], world.host(attempt)
    witnessed = machine.ended_boot_ns if machine.witnessed else None
    if witnessed is None:
        end = End(world.boot_ns(host), host.boot_id, then, failed)
        world.reached["an end after another boot"] += host.boot_id != attempt.boot_id
    else:
        end = End(witnessed, attempt.boot_id, then, failed, machine.late_ns)
    world.messages.append(Message(attempt.attempt_id, attempt.claim, end, joining))


def kill(world: World, attempt: Attempt) -> None:
    host, machine = world.host(attempt), world.machines[attempt.attempt_id]
    machine.ended_boot_ns = world.boot_ns(host)
    machine.late_ns = max(0, machine.ended_boot_ns - machine.deadline_boot_ns)


def say_that_they_live(world: World) -> None:
    """Hosts whose workers act are heard once a second."""
    for host in world.hosts:
        if host.acts:
            host.heard_ns = world.database_ns
            world.books.heard_ns[host.name] = world.database_ns


def keepers_act(world: World, host: Host, from_boot_ns: int) -> None:
    """Kill what is due, each at its moment; on a host that was suspended, on waking."""
    if host.suspended:
        return
    now_ns = world.boot_ns(host)
    for attempt in world.books.attempts.values():
        machine = world.machines[attempt.attempt_id]
        if attempt.host != host.name or not machine.lives:
            continue
        due_ns = max(machine.deadline_boot_ns - KILL_MARGIN_NS + host.slow_ns, from_boot_ns)
        if due_ns <= now_ns:
            machine.ended_boot_ns, machine.at_deadline = due_ns, True
            machine.late_ns = max(0, due_ns - machine.deadline_boot_ns)
            late = " late" if machine.late_ns else ""
            world.reached[f"a keeper killed{late}"] += 1


def deliver(world: World, message: Message) -> None:
    books, attempt = world.books, world.books.attempts[message.attempt_id]
    topped_up = books.booked["top_up"]
    try:
        fork = books.close(
            message.attempt_id, message.claim, message.end, world.database_ns, message.joining
        )
    except StaleClaim:
        world.reached["a stale message was refused"] += 1
        return
    except Conflict:
        world.reached["forks could not join"] += 1
        return
    world.reached["topped up for a replacement"] += books.booked["top_up"] - topped_up
    joined = bool(message.joining) and fork.stop_asked is None
    world.reached["forks joined"] += joined
    world.reached["forks came too late to join"] += bool(message.joining) and not joined
    unfunded = message.end.then is None and not attempt.intent and fork.stop_asked is None
    if unfunded and fork.state is ForkState.ENDED:
        world.reached["a replacement could not be funded"] += 1


def settle(world: World, run_id: str) -> None:
    """One of the control plane's processes comes to it; the other one may have been there before."""
    run, before = world.books.runs[run_id], world.books.booked["top_up"]
    lived = not run.ended
    world.books.settle(run_id)
    world.reached["topped up before it opened"] += world.books.booked["top_up"] - before
    world.reached["a run ended"] += lived and run.ended


def noting(world: World, attempt: Attempt, seen_ns: int) -> Task:
    split, lease_ns = world.books.meter(attempt.attempt_id, seen_ns), attempt.lease_ns

    def note() -> None:
        again = attempt.noted is not None
        if world.books.note(attempt.attempt_id, seen_ns, split):
            world.reached["a meter was read again"] += again
            world.leases_noted[attempt.attempt_id] = lease_ns

    return note


def sharing(world: World, run_id: str) -> Task:
    def share() -> None:
        now_ns = world.database_ns
        needs = world.books.needs(run_id, now_ns)
        could = [each for each in needs if each.can_use(now_ns)]
        world.reached["a silent host was not extended"] += not all(x.host_alive for x in needs)
        added = world.books.share(run_id, now_ns)
        if added:
            evenly = len(added) == len(could)
            world.reached["shared evenly" if evenly else "shared soonest first"] += 1
        lacking = any(added.get(each.fork_id, 0) < each.lacking_micros for each in could)
        run = world.books.runs[run_id]
        if lacking and not run.ended:
            world.left_over[run_id] = run.purse.pool_micros

    return share


def closing(world: World, attempt_id: str) -> Task:
    def close() -> None:
        if world.books.close_by_time(attempt_id, world.database_ns):
            world.reached["closed by time"] += 1
        else:
            world.reached["closed by another meanwhile"] += 1

    return close
