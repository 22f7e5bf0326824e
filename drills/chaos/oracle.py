"""What may follow from what truly befell a machine: the contract of outcomes as a table, by no code of the product.

A fact has a moment: how far the machine's fork had come. `MAY` says up to which moment a fact may make an environment
failure, and of which kinds; `MUST` from which moments no outcome of the task may be told any more, for its command did
not end, or not by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from drills.chaos.plan import Own


class When(IntEnum):
    """How far a machine's fork had come."""

    COMING_UP = 0
    HANDED_OVER = 1
    RUNNING = 2  # an intent is committed
    ENDED = 3  # its command ended in the guest, and nobody knows
    SAVED = 4


@dataclass(frozen=True, slots=True)
class Fact:
    """`what` is a key of the table: what died, was told, was planted."""

    what: str
    when: When


@dataclass(frozen=True, slots=True)
class Story:
    """One machine's: what befell it, how far its fork came on it, and whether its command ran out of time."""

    facts: tuple[Fact, ...]
    reached: When
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """What the run's caller said that decides outcomes: his commands by themselves, and whose faults are whose.

    `grade` is what a grade makes of it, None where none follows the command; `grade_kind` what a bad one is.
    """

    own: Own
    grade: Own | None = None
    grade_kind: str | None = None
    reports: bool = False
    guest_faults_are_tasks: bool = False
    short_of_money: bool = False


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a machine may come to: its command's own outcome, a failure of the task by its guest, the end of money, or
    an environment failure of one of these kinds.
    """

    own: bool
    by_task: bool
    capped: bool
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Blame:
    kinds: frozenset[str]
    may: When
    must: tuple[When, When] | None = None
    guests: bool = False


def _blame(
    *kinds: str, may: When, must: tuple[When, When] | None = None, guests: bool = False
) -> _Blame:
    return _Blame(frozenset(kinds), may, must, guests)


_ALIVE = (When.COMING_UP, When.RUNNING)
_NEVER_HANDED_OVER = (When.COMING_UP, When.COMING_UP)

TABLE: dict[str, _Blame] = {
    # no machine of its own said what became of it: its lease ended first
    "died deadline": _blame("worker_lost", "host_lost", may=When.ENDED, must=_ALIVE),
    "ended unsaid": _blame("worker_lost", may=When.ENDED),
    # the machine's end: while its command ran there is no result; after that it is lost unless somebody read it
    # of these, two are done from outside: no task answers for them, whatever its run says
    "died signal": _blame("guest_lost", may=When.ENDED, must=_ALIVE),
    "died exit": _blame("guest_lost", may=When.ENDED, must=_ALIVE, guests=True),
    "died keeper_lost": _blame("guest_lost", may=When.ENDED, must=_ALIVE),
    "died panicked": _blame("guest_panicked", may=When.ENDED, must=_ALIVE, guests=True),
    "machine hang": _blame("guest_hung", may=When.ENDED, must=_ALIVE, guests=True),
    "machine disk full": _blame("host_disk_full", may=When.ENDED, must=_ALIVE),
    "host down": _blame("host_lost", may=When.ENDED, must=_ALIVE),
    "host down after its end": _blame("host_lost", may=When.ENDED),
    # its worker and its database
    "worker killed": _blame("worker_lost", may=When.COMING_UP),
    "worker frozen": _blame("worker_lost", "restore_failed", may=When.COMING_UP),
    "worker superseded": _blame("worker_lost", may=When.COMING_UP),
    # nobody heard of its host for longer than its lease
    "host silent": _blame("host_lost", may=When.ENDED),
    "no database": _blame("worker_lost", may=When.COMING_UP),
    "opened untold": _blame("worker_lost", may=When.COMING_UP),
    # the fork contract: what is not sound is never handed over
    "wake lie nonce": _blame("barrier_failed", may=When.COMING_UP, must=_NEVER_HANDED_OVER),
    "wake lie reseeded": _blame("barrier_failed", may=When.COMING_UP, must=_NEVER_HANDED_OVER),
    # a sample is a duplicate from the second time on
    "wake lie sample": _blame("barrier_failed", may=When.COMING_UP),
    "wake lie boot_id": _blame("contract_broken", may=When.COMING_UP, must=_NEVER_HANDED_OVER),
    "wake lie guest_wall_ns": _blame(
        "contract_broken", may=When.COMING_UP, must=_NEVER_HANDED_OVER
    ),
    "wake lie hostname": _blame("contract_broken", may=When.COMING_UP, must=_NEVER_HANDED_OVER),
    "wake lie host_key_sound": _blame(
        "contract_broken", may=When.COMING_UP, must=_NEVER_HANDED_OVER
    ),
    "probe lie": _blame("contract_broken", may=When.COMING_UP, must=_NEVER_HANDED_OVER),
    "test spoilt": _blame("own_test_failed", may=When.COMING_UP, must=_NEVER_HANDED_OVER),
    "test hangs": _blame("guest_hung", may=When.COMING_UP, must=_NEVER_HANDED_OVER),
}
# A step of the worker's that failed though the machine lives: named as it was met, or, where the channel broke, by the
# machine that was ended because it did not answer.
_CHANNEL = frozenset({"guest_lost", "guest_hung"})
_STEPS = frozenset({"restore", "attach", "wake", "open", "probe", "start"})
# Its command ran out of time, and would not have.
STALLED = "machine stalled until its time was over"
# It ran out of time by itself, and its machine was stopped before anybody came: that is seen, and not when.
STALLED_LATE = "machine stalled after its time was over"
# A channel that broke is no end of a command whose machine answers: it is tried again, so many times in all.
CHANNEL_TRIES = 3
# A task's own command that takes its machine with it, or whose end is its environment's.
_OWN_KINDS = {
    Own.CRASHED: "guest_lost",
    Own.PANICKED: "guest_panicked",
    Own.HUNG: "guest_hung",
    Own.DISK_FULL: "host_disk_full",
    Own.NO_MEMORY: "guest_out_of_memory",
    Own.VICTIM: "guest_out_of_memory",
    Own.NO_HOST_MEMORY: "host_out_of_memory",
}
# Those that a guest which is root can bring about.
_GUESTS_OWN = frozenset({Own.CRASHED, Own.PANICKED, Own.HUNG, Own.NO_MEMORY})
# Commands after which a grade runs.


def verdicts(story: Story, terms: Terms) -> Verdicts:
    """What a machine with this story may come to."""
    own, by_task, capped, kinds = _by_itself(story, terms)
    for fact in story.facts:
        blame = _of(fact, story, terms)
        if blame is None or fact.when > blame.may:
            continue
        if blame.guests and terms.guest_faults_are_tasks and fact.when >= When.RUNNING:
            by_task = True
        else:
            kinds |= blame.kinds
        if blame.must is not None and blame.must[0] <= fact.when <= blame.must[1]:
            own = False
        if fact.what == "died deadline" and terms.short_of_money:
            capped = True
    if by_task and any(fact.what == "machine stall" for fact in story.facts):
        kinds |= {
            "guest_hung"
        }  # a machine that was stopped from outside is never its task's silence
    return Verdicts(own, by_task, capped, frozenset(kinds))


def _by_itself(story: Story, terms: Terms) -> tuple[bool, bool, bool, frozenset[str]]:
    """What the commands come to if nothing befalls them: their own outcome, or what they do to their environment."""
    nothing: frozenset[str] = frozenset()
    if story.reached < When.RUNNING:
        return False, False, False, nothing
    if terms.own in _OWN_KINDS:
        if terms.own in _GUESTS_OWN and terms.guest_faults_are_tasks:
            return False, True, False, nothing
        return False, False, False, frozenset({_OWN_KINDS[terms.own]})
    if terms.own is Own.REPORTED and terms.reports:
        return False, False, False, frozenset({"reported_by_command"})
    if terms.own is Own.SHUT_DOWN:
        return any(fact.what == "died shutdown" for fact in story.facts), False, False, nothing
    if terms.grade is Own.BAD_GRADE:
        by_task = terms.grade_kind == "guest_lost" and terms.guest_faults_are_tasks
        return (
            False,
            by_task,
            False,
            frozenset({terms.grade_kind or ""}) - {"guest_lost" if by_task else ""},
        )
    return story.reached >= When.ENDED, False, False, nothing


def _of(fact: Fact, story: Story, terms: Terms) -> _Blame | None:
    known = TABLE.get(fact.what)
    if known is not None:
        return known
    where, _, what = fact.what.partition(" ")
    if where == "probe" and what.startswith("lie"):
        return TABLE["probe lie"]
    if where in _STEPS or where == "end":
        return _step(where, what, fact, story)
    if where == "egress":
        return _egress(what, story, terms)
    if fact.what == STALLED_LATE:
        return _blame("host_stalled", may=When.ENDED)
    if fact.what == STALLED:
        return _blame("host_stalled", may=When.RUNNING, must=(When.RUNNING, When.RUNNING))
    return None


def _step(where: str, what: str, fact: Fact, story: Story) -> _Blame | None:
    """Before anything has started, a machine is replaced; afterwards a broken channel is only tried again."""
    if what not in _CHANNEL:
        return None if where == "end" else _Blame(frozenset({what}), When.ENDED)
    again = sum(each.what.startswith(f"{where} ") for each in story.facts)
    if fact.when >= When.RUNNING and again < CHANNEL_TRIES:
        return None
    if where == "end" and fact.when is When.COMING_UP and again < CHANNEL_TRIES:
        return None
    return _Blame(_CHANNEL, When.ENDED, guests=again >= CHANNEL_TRIES)


def _egress(during: str, story: Story, terms: Terms) -> _Blame | None:
    """An allowed target was lost while a command ran: that is why it did not pass, unless it passed."""
    own = terms.own if during.endswith("task") else terms.grade
    stalled = any(fact.what == STALLED for fact in story.facts)
    if during == "none" or (own is Own.PASSED and not stalled):
        return None
    if during.startswith("late"):
        return _blame("egress_lost", may=When.ENDED)
    must = (When.RUNNING, When.RUNNING) if own in (Own.FAILED, Own.TIMED_OUT) else None
    return _blame("egress_lost", may=When.RUNNING, must=must)
