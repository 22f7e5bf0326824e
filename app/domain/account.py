"""Who calls: a project with its limits, its keys; and what a repeated call is recognised by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypedDict

from app.domain.instant import instant
from app.domain.money import NS_PER_SECOND, usd, usd_text
from app.errors import BadRequest, Conflict, Forbidden

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_FORKS = 1_000_000
MAX_KEY_NAME, MAX_KEY_DAYS = 100, 3650


class Scope(StrEnum):
    """What a key opens. None implies another: a trainer's key has `read` and `run`."""

    READ = "read"
    RUN = "run"
    BUILD = "build"
    ADMIN = "admin"


class Under(StrEnum):
    """Which of the deployment's secrets a key is hashed with, as far as the process that lists it can tell."""

    PRESENT = "present"
    PREVIOUS = "previous"
    UNKNOWN = "unknown"  # made before that was noted, and not used since
    LOST = "lost"  # with one that is not here any more: it opens nothing


@dataclass(frozen=True, slots=True)
class Key:
    """An API key as it may be listed; its secret is stored only as a hash and shown once.

    `used_ns` is when it was last used, to the minute.
    """

    key_id: str
    project_id: str
    name: str
    prefix: str
    created_ns: int
    scopes: tuple[Scope, ...] = tuple(Scope)
    expires_ns: int | None = None
    used_ns: int | None = None
    revoked_ns: int | None = None
    under: Under = Under.PRESENT

    def is_live(self, now_ns: int) -> bool:
        """Whether it opens anything at this instant."""
        return self.revoked_ns is None and (self.expires_ns is None or now_ns < self.expires_ns)

    def as_dict(self) -> dict[str, object]:
        """The JSON shape of the contract."""
        return {
            "key_id": self.key_id,
            "project": self.project_id,
            "name": self.name,
            "prefix": self.prefix,
            "scopes": [scope.value for scope in self.scopes],
            "created_at": instant(self.created_ns),
            "expires_at": _instant(self.expires_ns),
            "last_used_at": _instant(self.used_ns),
            "revoked_at": _instant(self.revoked_ns),
        }


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: what a key that opens stands for."""

    project_id: str
    key_id: str
    scopes: frozenset[Scope]
    expires_ns: int | None = None

    def need(self, scope: Scope) -> None:
        """Raises Forbidden(missing_scope) for a key without it, naming what it has."""
        if scope not in self.scopes:
            raise _missing((scope,), self)

    def may_give(self, scopes: Iterable[Scope]) -> None:
        """No key gives what it lacks. Raises Forbidden(missing_scope)."""
        lacking = [scope for scope in ordered(scopes) if scope not in self.scopes]
        if lacking:
            raise _missing(lacking, self)


@dataclass(frozen=True, slots=True)
class Receipt:
    """An idempotency key with the body it stood for and the answer that its first use got; kept for 24 h."""

    key: str
    body_sha256: str
    answer: dict[str, object]


class Limits(TypedDict, total=False):
    """Limits of a project to be changed; None takes one away, and what is left out stays."""

    monthly_budget_micros: int | None
    max_forks: int | None


@dataclass(frozen=True, slots=True)
class Project:
    """A project's limits, and how it stands against them now; a limit of None is none.

    `committed_micros` are the budgets of those runs of `month` that live and the charges of those that have ended;
    `live_forks` have room reserved on a host.
    """

    project_id: str
    month: str
    monthly_budget_micros: int | None = None
    committed_micros: int = 0
    max_forks: int | None = None
    live_forks: int = 0

    @property
    def left_micros(self) -> int | None:
        """What new runs of this month may be given."""
        if self.monthly_budget_micros is None:
            return None
        return self.monthly_budget_micros - self.committed_micros

    @property
    def free_forks(self) -> int | None:
        """How many more forks may be placed now."""
        return None if self.max_forks is None else self.max_forks - self.live_forks


@dataclass(frozen=True, slots=True)
class Account:
    """A project with what the runs of its month have been charged: what its members read."""

    project: Project
    charged_micros: int

    @property
    def reserved_micros(self) -> int:
        """Budgets of live runs, less what these have been charged."""
        return self.project.committed_micros - self.charged_micros

    def as_dict(self) -> dict[str, object]:
        """The JSON shape of the contract."""
        project = self.project
        return {
            "project": project.project_id,
            "month": project.month,
            "resets_at": instant(month_end_ns(project.month)),
            "monthly_budget_usd": _usd(project.monthly_budget_micros),
            "charged_usd": usd(self.charged_micros),
            "reserved_usd": usd(self.reserved_micros),
            "left_usd": _usd(project.left_micros),
            "max_forks": project.max_forks,
            "live_forks": project.live_forks,
        }


def key_named(name: str) -> str:
    """The name as it is. Raises BadRequest(bad_request)."""
    if not 0 < len(name) <= MAX_KEY_NAME or not name.isprintable():
        raise BadRequest("bad_request", f"a key's name is 1 to {MAX_KEY_NAME} printable characters")
    return name


def ordered(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """Each once, in the order of `Scope`."""
    given = frozenset(scopes)
    return tuple(scope for scope in Scope if scope in given)


def month_of(wall_ns: int) -> str:
    """The month of UTC that an instant is in: `2026-11`."""
    return datetime.fromtimestamp(wall_ns // NS_PER_SECOND, tz=UTC).strftime("%Y-%m")


def month_start_ns(month: str) -> int:
    """Its first instant, ns since the epoch."""
    return int(_first(month).timestamp()) * NS_PER_SECOND


def month_end_ns(month: str) -> int:
    """The first instant of the month after it."""
    first = _first(month)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(following.timestamp()) * NS_PER_SECOND


def budget_exhausted(project: Project, needed_micros: int) -> Conflict:
    """The month has less left than a step needs; nothing was started."""
    left = project.left_micros or 0
    resets_at = instant(month_end_ns(project.month))
    return Conflict(
        "project_budget_exhausted",
        f"project {project.project_id} has {usd_text(left)} USD left of its budget for {project.month}, and this needs "
        f"{usd_text(needed_micros)} USD; what live runs do not spend comes back when they end, and a new month begins "
        f"{resets_at}",
        project_left_usd=usd(left),
        needed_usd=usd(needed_micros),
        monthly_budget_usd=_usd(project.monthly_budget_micros),
        resets_at=resets_at,
    )


def check_limits(project: Project, changes: Limits) -> None:
    """Limits are laws, so one cannot be set below what is already given out.

    Raises Conflict(budget_committed, forks_are_live), naming the least that can be set now.
    """
    budget = changes.get("monthly_budget_micros")
    if budget is not None and budget < project.committed_micros:
        raise Conflict(
            "budget_committed",
            f"runs of {project.month} hold or were charged {usd_text(project.committed_micros)} USD: the budget "
            f"of {project.project_id} cannot be lower now",
            committed_usd=usd(project.committed_micros),
        )
    most = changes.get("max_forks")
    if most is not None and most < project.live_forks:
        raise Conflict(
            "forks_are_live",
            f"{project.live_forks} forks of {project.project_id} are live: its limit cannot be lower now",
            live_forks=project.live_forks,
        )


def check_name(project_id: str) -> str:
    """A name that a project may be given. Raises BadRequest(bad_request)."""
    if not NAME.fullmatch(project_id):
        raise BadRequest(
            "bad_request",
            "a project's name is 1 to 64 letters, digits, dots, dashes and underscores",
        )
    return project_id


def max_forks_of(told: str) -> int:
    """A limit of forks as an operator writes it. Raises BadRequest(bad_request)."""
    if not re.fullmatch("[1-9][0-9]{0,6}", told) or int(told) > MAX_FORKS:
        raise BadRequest(
            "bad_request",
            f"max_forks must be a whole number from 1 to {MAX_FORKS}",
            field="max_forks",
        )
    return int(told)


def _missing(needed: Iterable[Scope], caller: Caller) -> Forbidden:
    words, has = (
        [scope.value for scope in needed],
        [scope.value for scope in ordered(caller.scopes)],
    )
    return Forbidden(
        "missing_scope",
        f"this needs a key with the scope {', '.join(words)}; this key has {', '.join(has)}",
        needed=words,
        scopes=has,
    )


def _instant(at_ns: int | None) -> str | None:
    return None if at_ns is None else instant(at_ns)


def _usd(micros: int | None) -> float | None:
    return None if micros is None else usd(micros)


def _first(month: str) -> datetime:
    return datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
