"""Errors keep what they say on every way out of a process."""

from __future__ import annotations

import pickle

import pytest
from celery.utils.serialization import get_pickleable_exception

from app.errors import (
    BadRequest,
    EnvironmentFault,
    FailureKind,
    PromigenceError,
    StaleClaim,
    Unavailable,
)

ERRORS = (
    BadRequest("bad_cap", "a cap is above zero", cap=-1),
    StaleClaim("att_1"),
    Unavailable("database_away", "try again"),
    EnvironmentFault(FailureKind.GUEST_LOST, "it is gone", exit_code=3),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_when_it_is_unpickled(error: PromigenceError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is type(error)
    assert (again.args, vars(again)) == (error.args, vars(error))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_queue_sees_an_error_of_ours_as_what_it_is(error: PromigenceError) -> None:
    assert get_pickleable_exception(error) is error
