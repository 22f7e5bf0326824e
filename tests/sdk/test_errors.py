from __future__ import annotations

import pickle
import re

import pytest

import promigence
from promigence import errors
from tests.sdk import shapes

CLASSES = [getattr(errors, name) for name in errors.__all__]


def drawn_tree() -> dict[str, str]:
    """Each class of the picture in the module's docstring, with the one that it hangs under."""
    above: list[tuple[int, str]] = []
    parents: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([ │├└─]*)([A-Z][A-Za-z]+)(\s{2,}.*)?$", line)
        if not found or "PromigenceError" not in {found[2], *(name for _, name in above)}:
            continue
        depth = len(found[1])
        above = [(column, name) for column, name in above if column < depth]
        if above:
            parents[found[2]] = above[-1][1]
        above.append((depth, found[2]))
    return parents


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    real = {
        kind.__name__: kind.__mro__[1].__name__
        for kind in CLASSES
        if kind is not errors.PromigenceError
    }
    assert drawn_tree() == real


def test_every_error_of_the_module_is_exported() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PromigenceError)
    }
    assert defined == set(errors.__all__)
    assert defined <= set(promigence.__all__)


@pytest.mark.parametrize(
    "kind", [kind for kind in CLASSES if kind is not errors.EnvironmentFailure]
)
def test_an_error_survives_a_process_boundary(kind: type[errors.PromigenceError]) -> None:
    error = kind("what to do", code="c", status=418, request_id="req-1", details={"limit": 3})
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == "what to do (c, request req-1)"


def test_an_environment_failure_survives_a_process_boundary() -> None:
    error = errors.EnvironmentFailure(
        "lost", failure=shapes.failure(), fork_id="f-1", request_id="req-1", status=409
    )
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert vars(again) == vars(error)
    assert again.failure["kind"] == "guest_lost"


def test_what_can_be_made_again_says_so_by_itself() -> None:
    retryable = {kind.__name__ for kind in CLASSES if kind.default_retryable}
    assert retryable == {
        "DeadlineExceeded",
        "RateLimited",
        "ServerUnreachable",
        "Unavailable",
        "WaitTimeout",
    }
