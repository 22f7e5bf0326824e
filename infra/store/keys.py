"""API keys of projects. A secret is kept only as its HMAC-SHA256 under the deployment's own secret."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from sqlalchemy import insert, select, update

from app.domain.account import Key
from app.errors import NotFound, PromigenceError, Unauthorized
from app.ids import new_id
from infra.store.budgets import make_project
from infra.store.engine import Database
from infra.store.rows import columns_of, noun_of
from infra.store.tables import api_keys

SECRET_BYTES = 32
PREFIX_LENGTH = 12


class Keys:
    """`app.ports.callers.Keys`. A process that checks no keys (a host) is given no `secret`."""

    def __init__(self, database: Database, secret: bytes | None) -> None:
        self._database = database
        self._secret = secret

    def create(self, project_id: str, name: str) -> tuple[Key, str]:
        secret = f"pmg_{secrets.token_hex(SECRET_BYTES)}"
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            key = Key(new_id("key"), project_id, name, secret[:PREFIX_LENGTH], now_ns)
            make_project(at, project_id, now_ns)
            at.execute(insert(api_keys).values(digest=self._digest(secret), **columns_of(key)))
        return key, secret

    def list(self) -> tuple[Key, ...]:
        with self._database.read() as at:
            rows = at.execute(select(api_keys).order_by(api_keys.c.created_ns, api_keys.c.key_id))
            return tuple(noun_of(Key, row) for row in rows)

    def revoke(self, key_id: str) -> Key:
        with self._database.write() as at:
            at.execute(
                update(api_keys)
                .where(api_keys.c.key_id == key_id, api_keys.c.revoked_ns.is_(None))
                .values(revoked_ns=self._database.now_ns(at))
            )
            row = at.execute(select(api_keys).where(api_keys.c.key_id == key_id)).one_or_none()
        if row is None:
            raise NotFound("unknown_key", f"there is no key {key_id}")
        return noun_of(Key, row)

    def project_of(self, secret: str) -> str:
        digest = self._digest(secret)
        with self._database.read() as at:
            row = at.execute(select(api_keys).where(api_keys.c.digest == digest)).one_or_none()
        if row is None or not hmac.compare_digest(row.digest, digest):
            raise Unauthorized("wrong_key", "this API key is not known here")
        if row.revoked_ns is not None:
            raise Unauthorized("revoked_key", "this API key has been revoked")
        return str(row.project_id)

    def _digest(self, secret: str) -> str:
        if not self._secret:
            raise PromigenceError("no_key_secret", "this process was not given the secret of keys")
        return hmac.new(self._secret, secret.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
