"""The demo's policy server over real HTTP."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from demo import policy

QUESTION = {"fork_index": 0, "instruction": "mend it", "path": "a.py", "source": "x = 1\n"}


@pytest.fixture
def server() -> Iterator[policy.Policy]:
    with policy.serving("def test_hidden(): ...", slow_index=7) as running:
        yield running


def test_the_same_index_gets_the_same_patch(server: policy.Policy) -> None:
    first, again = (ask(server, "/patch", QUESTION) for _ in range(2))

    assert first == again
    assert first["patch"].startswith("diff --git a/boltons/setutils.py")


def test_right_and_wrong_patches_are_given_out(server: policy.Policy) -> None:
    outcomes = {policy.expected_outcome(index) for index in range(20)}
    patches = {
        ask(server, "/patch", {**QUESTION, "fork_index": index})["patch"] for index in range(5)
    }

    assert outcomes == {"passed", "failed"}
    assert len(patches) == len(set(policy.CYCLE))


def test_the_hidden_tests_are_served(server: policy.Policy) -> None:
    assert ask(server, "/tests") == {"tests": "def test_hidden(): ..."}


@pytest.mark.parametrize(
    ("path", "question", "status"),
    [
        ("/patch", {"fork_index": "0"}, 400),
        ("/patch", {"fork_index": -1}, 400),
        ("/patch", [0], 400),
        ("/other", QUESTION, 404),
        ("/other", None, 404),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    server: policy.Policy, path: str, question: object, status: int
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(server, path, question)

    with refused.value as error:
        assert error.code == status
        assert "error" in json.loads(error.read())


def test_a_body_that_is_too_large_is_refused_unread(
    server: policy.Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "QUESTION_LIMIT_BYTES", 10)

    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(server, "/patch", QUESTION)

    with refused.value as error:
        assert error.code == 400


def test_the_slow_index_waits_and_says_that_it_does() -> None:
    answers: list[dict[str, str]] = []
    with policy.serving("", slow_index=7) as server:
        question = {**QUESTION, "fork_index": 7}
        asking = threading.Thread(target=lambda: answers.append(ask(server, "/patch", question)))
        asking.start()
        assert server.slow_asked.wait(30)
        assert answers == []

    asking.join(30)
    assert answers[0]["patch"]


def ask(server: policy.Policy, path: str, question: object = None) -> dict[str, str]:
    body = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(f"http://{server.address}{path}", body)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as response:
        answer: dict[str, str] = json.loads(response.read())
    return answer
