"""PostgreSQL over TLS that checks who answers: `sslmode=verify-full` and `sslrootcert` in the URL, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import make_url

from app.errors import Unavailable
from infra.access.postgres import PostgresLogins
from infra.store import create_store
from tests.contract import postgres
from tests.integration.certificates import Authority
from tests.integration.tls_front import tls_front

HOST = "host0"


@dataclass(frozen=True, slots=True)
class Guarded:
    """`owner` is the control plane's URL over TLS."""

    owner: str
    authority: Authority
    folder: Path

    def opens(self, url: str) -> bool:
        """Whether a store on it reads. The server's own refusals and the client's come out as Unavailable."""
        store = create_store(url)
        try:
            store.hosts.list()
        except Unavailable:
            return False
        finally:
            store.close()
        return True


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder, "ours")
    with postgres.server() as plain:
        store = create_store(plain)
        store.migrate()
        store.close()
        where = Path(str(make_url(plain).query["host"])) / ".s.PGSQL.5432"
        with tls_front(where, *authority.sign("localhost")) as port:
            checked = {"sslmode": "verify-full", "sslrootcert": str(authority.ca)}
            url = make_url(plain).set(host="localhost", port=port, query=checked)
            yield Guarded(url.render_as_string(hide_password=False), authority, folder)


def test_a_login_is_made_and_used_over_tls_that_is_checked(guarded: Guarded) -> None:
    """The host's URL checks the server as the owner's does: it is the same but for who logs in."""
    logins = PostgresLogins(guarded.owner)
    url = make_url(logins.create(HOST))
    assert url.query["sslmode"] == "verify-full"
    assert guarded.opens(url.render_as_string(hide_password=False))
    logins.remove(HOST)
    assert not guarded.opens(url.render_as_string(hide_password=False))


def test_a_server_that_another_authority_vouches_for_is_nobody(guarded: Guarded) -> None:
    other = str(Authority(guarded.folder, "another").ca)
    assert guarded.opens(guarded.owner)
    assert not guarded.opens(_with(guarded.owner, sslrootcert=other))


def test_a_server_of_another_name_is_nobody(guarded: Guarded) -> None:
    assert not guarded.opens(
        make_url(guarded.owner).set(host="127.0.0.1").render_as_string(hide_password=False)
    )


def test_without_tls_nobody_comes_in(guarded: Guarded) -> None:
    assert not guarded.opens(_with(guarded.owner, sslmode="disable"))


def _with(url: str, **query: str) -> str:
    named = make_url(url)
    changed = named.update_query_dict(query)
    return changed.render_as_string(hide_password=False)
