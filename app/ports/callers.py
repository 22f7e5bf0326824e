"""Who calls: projects with their limits, their keys, and the answers that were given. Rows like those of `store.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from app.domain.account import Account, Caller, Key, Limits, Project, Receipt, Scope


class Keys(Protocol):
    """API keys of projects."""

    def create(
        self,
        project_id: str,
        name: str,
        scopes: Iterable[Scope] = Scope,
        expires_s: float | None = None,
        *,
        maker: str | None = None,
        receipt_of: Callable[[Key], Receipt | None] = ...,
    ) -> tuple[Key, str]:
        """A new key and its secret (`pmg_` and 256 random bits), which is not kept. Makes the project if need be.

        It opens nothing any more `expires_s` from now, by the database's clock, nor when the key `maker` is over; one
        that is over already makes none: Unauthorized(revoked_key), also where that comes in between. The receipt that
        `receipt_of` it gives is written with it: Conflict(idempotency_race) if another call wrote that first.
        Raises BadRequest for a name that no new project may have, and for no scope at all.
        """
        ...

    def list(self, project_id: str | None = None) -> tuple[Key, ...]:
        """In the order in which they were made; of one project, or all."""
        ...

    def revoke(self, key_id: str, of: str | None = None) -> Key:
        """Let it open nothing any more. Twice is safe.

        With `of` only a key of that project, and not its last live one with the scope `admin`:
        Conflict(last_admin_key). Raises NotFound(unknown_key).
        """
        ...

    def caller_of(self, secret: str) -> Caller:
        """Who calls with it. Notes the use, at most once a minute; a key that is still hashed with the deployment's
        previous secret is hashed with the present one.

        Raises Unauthorized(wrong_key, revoked_key, expired_key).
        """
        ...


class Projects(Protocol):
    """Limits above those of a run, in the present month of UTC by the database's clock."""

    def get(self, project_id: str) -> Project:
        """A project that nobody has made has no limits."""
        ...

    def account(self, project_id: str) -> Account:
        """With what the month's runs were charged, all of one instant. Raises NotFound(unknown_project)."""
        ...

    def list(self) -> tuple[Account, ...]:
        """All projects, by name."""
        ...

    def set_limits(self, project_id: str, changes: Limits) -> None:
        """Change limits, of this month and those to come; makes the project if need be.

        A limit is never below what is given out already: Conflict(budget_committed, forks_are_live), and nothing is
        changed. Raises BadRequest for a name that no new project may have.
        """
        ...


class Receipts(Protocol):
    """Answers already given, by idempotency key. They are written with the effect (`Runs.start`, `Builds.start`)."""

    def find(self, project_id: str, key: str) -> Receipt | None:
        """None after 24 h."""
        ...

    def keep(self, project_id: str, receipt: Receipt) -> None:
        """Write the receipt of an effect that is safe to bring about twice. Raises Conflict(idempotency_race)."""
        ...
