"""The contracts of logins and secrets: the ones in memory, and what stands beside them as it comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.domain.access import HostAccess
from infra.conformance_access import (
    LOGIN_CHECKS,
    SECRET_CHECKS,
    LoginSubject,
    SecretSubject,
)
from infra.fakes.access import FakeLogins, FakeSecrets


@pytest.mark.parametrize("check", LOGIN_CHECKS, ids=lambda check: check.__name__)
def test_logins_in_memory(check: Callable[[LoginSubject], None]) -> None:
    logins = FakeLogins()
    check(LoginSubject(logins, logins.opens))


@pytest.mark.parametrize("check", SECRET_CHECKS, ids=lambda check: check.__name__)
def test_secrets_in_memory(check: Callable[[SecretSubject], None]) -> None:
    secrets = FakeSecrets()
    check(SecretSubject(secrets, secrets.read))


def test_what_a_host_logs_in_with_is_in_no_traceback() -> None:
    assert "hunter2" not in repr(HostAccess("postgresql://a:hunter2@b", "redis://:hunter2@c"))
