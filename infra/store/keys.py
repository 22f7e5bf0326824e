"""API keys of projects. A secret is kept only as its HMAC-SHA256 under the deployment's own secret.

That one can be changed under live keys: for a while the process is given the previous one too, and whatever opens by
it is hashed anew. Which of them a digest was made with is noted as a few bits of a hash of the secret itself, which at
256 random bits gives nothing of it away.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Iterable

from sqlalchemy import Connection, insert, select, update

from app.domain.account import Caller, Key, Receipt, Scope, Under, ordered
from app.domain.money import NS_PER_SECOND
from app.errors import BadRequest, Conflict, NotFound, PromigenceError, Unauthorized, Unavailable
from app.ids import new_id
from infra.store.budgets import make_project
from infra.store.engine import BRIEFLY_MS, AnyRow, Database, locked
from infra.store.receipts import keep_receipt
from infra.store.tables import api_keys

log = logging.getLogger(__name__)

SECRET_BYTES = 32
PREFIX_LENGTH = 12
# A use is noted so often at most: of the calls of a busy key one in thousands writes.
USE_NOTED_NS = 60 * NS_PER_SECOND


class Keys:
    """`app.ports.callers.Keys`. A process that checks no keys (a host) is given no `secret`."""

    def __init__(
        self, database: Database, secret: bytes | None, previous: bytes | None = None
    ) -> None:
        self._database = database
        self._secret = secret
        self._previous = previous

    def create(
        self,
        project_id: str,
        name: str,
        scopes: Iterable[Scope] = Scope,
        expires_s: float | None = None,
        *,
        maker: str | None = None,
        receipt_of: Callable[[Key], Receipt | None] = lambda _: None,
    ) -> tuple[Key, str]:
        given = ordered(scopes)
        if not given:
            raise BadRequest("bad_request", "a key needs a scope, or it opens nothing")
        secret = f"pmg_{secrets.token_hex(SECRET_BYTES)}"
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            ends_by_ns = None if maker is None else self._end_of(at, project_id, maker, now_ns)
            asked_ns = None if expires_s is None else now_ns + int(expires_s * NS_PER_SECOND)
            row = {
                "key_id": new_id("key"),
                "project_id": project_id,
                "name": name,
                "prefix": secret[:PREFIX_LENGTH],
                "digest": _digest(self._own_secret, secret),
                "secret_id": _id_of(self._own_secret),
                "scopes": given,
                "created_ns": now_ns,
                "expires_ns": _earlier(asked_ns, ends_by_ns),
            }
            make_project(at, project_id, now_ns)
            made = at.execute(insert(api_keys).values(row).returning(*api_keys.columns)).one()
            key = self._key(made)
            keep_receipt(at, project_id, receipt_of(key), now_ns)
        return key, secret

    def list(self, project_id: str | None = None) -> tuple[Key, ...]:
        found = select(api_keys).order_by(api_keys.c.created_ns, api_keys.c.key_id)
        if project_id is not None:
            found = found.where(api_keys.c.project_id == project_id)
        with self._database.read() as at:
            return tuple(map(self._key, at.execute(found)))

    def revoke(self, key_id: str, of: str | None = None) -> Key:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            key = self._locked(at, key_id, of)
            if key.revoked_ns is None:
                if of is not None:
                    self._refuse_the_last(at, key, now_ns)
                mine = api_keys.c.key_id == key_id
                at.execute(update(api_keys).where(mine).values(revoked_ns=now_ns))
            row = at.execute(select(api_keys).where(api_keys.c.key_id == key_id)).one()
        return self._key(row)

    def caller_of(self, secret: str) -> Caller:
        digests = [_digest(each, secret) for each in self._secrets()]
        with self._database.read() as at:
            now = self._database.clock_ns(at).label("now_ns")
            row = at.execute(select(api_keys, now).where(api_keys.c.digest.in_(digests))).first()
        if row is None or not any(hmac.compare_digest(row.digest, each) for each in digests):
            raise Unauthorized("wrong_key", "this API key is not known here")
        if row.revoked_ns is not None:
            raise Unauthorized("revoked_key", "this API key has been revoked")
        if row.expires_ns is not None and row.expires_ns <= row.now_ns:
            raise Unauthorized("expired_key", "this API key's time is over")
        present = digests[0]
        if row.digest != present or row.secret_id is None or _is_long_ago(row):
            self._note_use(row, present)
        return Caller(row.project_id, row.key_id, frozenset(row.scopes), row.expires_ns)

    def _end_of(self, at: Connection, project_id: str, maker: str, now_ns: int) -> int | None:
        """When the maker's key ends, which is not revoked before this is written."""
        found = select(api_keys).filter_by(project_id=project_id, key_id=maker)
        row = at.execute(locked(found)).first()
        if row is None or not self._key(row).is_live(now_ns):
            raise Unauthorized("revoked_key", "the key that makes this one opens nothing any more")
        return self._key(row).expires_ns

    def _note_use(self, row: AnyRow, present: str) -> None:
        """A note that cannot be made now is made at a later use; the call itself has nothing to do with it."""
        new: dict[str, object] = {"digest": present, "secret_id": _id_of(self._own_secret)}
        try:
            with self._database.write(BRIEFLY_MS) as at:
                new["used_ns"] = self._database.now_ns(at)
                as_read = (api_keys.c.key_id == row.key_id, api_keys.c.digest == row.digest)
                at.execute(update(api_keys).where(*as_read).values(new))
        except Unavailable as busy:
            log.warning("the use of key %s was not noted: %s", row.key_id, busy.code)

    def _locked(self, at: Connection, key_id: str, of: str | None) -> Key:
        """The key, with all keys of its project locked: of two that revoke each other one comes later."""
        project = select(api_keys.c.project_id).where(api_keys.c.key_id == key_id)
        if of is not None:
            project = project.where(api_keys.c.project_id == of)
        project_id = at.execute(project).scalar()
        rows = at.execute(
            locked(
                select(api_keys)
                .where(api_keys.c.project_id == project_id)
                .order_by(api_keys.c.key_id)
            )
        )
        for row in rows.all():
            if row.key_id == key_id:
                return self._key(row)
        raise NotFound("unknown_key", f"there is no key {key_id}")

    def _refuse_the_last(self, at: Connection, key: Key, now_ns: int) -> None:
        rows = at.execute(select(api_keys).where(api_keys.c.project_id == key.project_id))
        admins = {
            each.key_id
            for each in map(self._key, rows)
            if Scope.ADMIN in each.scopes and each.is_live(now_ns)
        }
        if admins == {key.key_id}:
            raise Conflict(
                "last_admin_key",
                f"{key.key_id} is the last live key of {key.project_id} with the scope admin: make another first, or "
                f"have the operator revoke it (promigence-server keys revoke)",
            )

    def _key(self, row: AnyRow) -> Key:
        return Key(
            key_id=row.key_id,
            project_id=row.project_id,
            name=row.name,
            prefix=row.prefix,
            created_ns=row.created_ns,
            scopes=row.scopes,
            expires_ns=row.expires_ns,
            used_ns=row.used_ns,
            revoked_ns=row.revoked_ns,
            under=self._under(row.secret_id),
        )

    def _under(self, secret_id: str | None) -> Under:
        if secret_id is None:
            return Under.UNKNOWN
        if self._secret and secret_id == _id_of(self._secret):
            return Under.PRESENT
        if self._previous and secret_id == _id_of(self._previous):
            return Under.PREVIOUS
        return Under.LOST

    def _secrets(self) -> tuple[bytes, ...]:
        """The present one first."""
        return (self._own_secret, *([self._previous] if self._previous else []))

    @property
    def _own_secret(self) -> bytes:
        if not self._secret:
            raise PromigenceError("no_key_secret", "this process was not given the secret of keys")
        return self._secret


def _digest(under: bytes, secret: str) -> str:
    return hmac.new(under, secret.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _id_of(secret: bytes) -> str:
    return hmac.new(secret, b"which secret of keys", hashlib.sha256).hexdigest()[:12]


def _earlier(one_ns: int | None, other_ns: int | None) -> int | None:
    known = [each for each in (one_ns, other_ns) if each is not None]
    return min(known, default=None)


def _is_long_ago(row: AnyRow) -> bool:
    return row.used_ns is None or bool(row.used_ns <= row.now_ns - USE_NOTED_NS)
