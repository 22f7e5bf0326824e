"""The contracts of `app.ports.access` as runnable checks, for every adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.domain.access import HostAccess
from app.errors import BadRequest
from app.ports.access import Logins, Secrets

ONE, OTHER, NOBODY = "i-0123456789abcdef0", "host.b_2", "i-00000000"


@dataclass(frozen=True, slots=True)
class LoginSubject:
    """Logins of a store without hosts; `opens` tries a URL, `others` are the users that the store has besides.

    `other` is the id of a host that it takes beside `ONE`.
    """

    logins: Logins
    opens: Callable[[str], bool]
    others: Callable[[], object] = tuple
    other: str = OTHER


@dataclass(frozen=True, slots=True)
class SecretSubject:
    """An empty place for secrets; `read` is what a host finds there, None if there is nothing."""

    secrets: Secrets
    read: Callable[[str], HostAccess | None]


def check_a_host_is_let_in(subject: LoginSubject) -> None:
    url = subject.logins.create(ONE)
    assert subject.opens(url)
    assert subject.logins.list() == (ONE,)


def check_each_host_has_its_own(subject: LoginSubject) -> None:
    urls = [subject.logins.create(ONE), subject.logins.create(subject.other)]
    assert urls[0] != urls[1]
    assert all(map(subject.opens, urls))
    assert subject.logins.list() == tuple(sorted((ONE, subject.other)))


def check_a_new_url_ends_the_one_before(subject: LoginSubject) -> None:
    before, after = subject.logins.create(ONE), subject.logins.create(ONE)
    assert not subject.opens(before)
    assert subject.opens(after)
    assert subject.logins.list() == (ONE,)


def check_who_is_shut_out_stays_out(subject: LoginSubject) -> None:
    gone, stays = subject.logins.create(ONE), subject.logins.create(subject.other)
    subject.logins.remove(ONE)
    subject.logins.remove(ONE)
    subject.logins.remove(NOBODY)
    assert not subject.opens(gone)
    assert subject.opens(stays)
    assert subject.logins.list() == (subject.other,)


def check_others_are_left_alone(subject: LoginSubject) -> None:
    before = subject.others()
    subject.logins.create(ONE)
    subject.logins.remove(ONE)
    assert subject.others() == before
    assert subject.logins.list() == ()


def check_no_name_is_more_than_a_name(subject: LoginSubject) -> None:
    for name in ("", "*", "a b", 'a"b', "a:b", "a/b", "x" * 65, "host\n", "é"):
        assert _refusal(lambda name=name: subject.logins.create(name)) == "bad_host_id"  # type: ignore[misc]
        assert _refusal(lambda name=name: subject.logins.remove(name)) == "bad_host_id"  # type: ignore[misc]
    assert subject.logins.list() == ()


LOGIN_CHECKS: tuple[Callable[[LoginSubject], None], ...] = (
    check_a_host_is_let_in,
    check_each_host_has_its_own,
    check_a_new_url_ends_the_one_before,
    check_who_is_shut_out_stays_out,
    check_others_are_left_alone,
    check_no_name_is_more_than_a_name,
)


def check_a_host_finds_what_was_put(subject: SecretSubject) -> None:
    access = HostAccess("postgresql://a", "rediss://b")
    subject.secrets.put(ONE, access)
    assert subject.read(ONE) == access
    assert subject.read(OTHER) is None
    assert subject.secrets.list() == (ONE,)


def check_the_latest_stands(subject: SecretSubject) -> None:
    subject.secrets.put(ONE, HostAccess("postgresql://a", "rediss://b"))
    latest = HostAccess("postgresql://c", "rediss://d")
    subject.secrets.put(ONE, latest)
    assert subject.read(ONE) == latest
    assert subject.secrets.list() == (ONE,)


def check_nothing_is_left(subject: SecretSubject) -> None:
    access = HostAccess("postgresql://a", "rediss://b")
    for name in (ONE, OTHER):
        subject.secrets.put(name, access)
    subject.secrets.delete(ONE)
    subject.secrets.delete(ONE)
    subject.secrets.delete(NOBODY)
    assert subject.read(ONE) is None
    assert subject.secrets.list() == (OTHER,)
    subject.secrets.put(ONE, access)
    assert subject.read(ONE) == access


SECRET_CHECKS: tuple[Callable[[SecretSubject], None], ...] = (
    check_a_host_finds_what_was_put,
    check_the_latest_stands,
    check_nothing_is_left,
)


def _refusal(act: Callable[[], object]) -> str:
    try:
        act()
    except BadRequest as refused:
        return refused.code
    return "nothing"
