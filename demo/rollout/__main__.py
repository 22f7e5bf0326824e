"""One rollout in one fork: ask the policy for a patch and the hidden tests, apply the one, run the others.

    python -m rollout --policy http://HOST:PORT

Exit codes: 0 the hidden tests pass; 1 they fail, or the patch does not apply (the task's failures);
75 the policy or the warm test process is not to be had (the environment's fault, and the run says
so by `environment_exit_codes`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

from .warm_tests import SOCKET, run_tests

PASSED, FAILED, ENVIRONMENT_FAULT = 0, 1, 75
REPO = Path("/workspace/repo")
INSTRUCTION = Path("/workspace/instruction.md")
SOURCE = "boltons/setutils.py"
POLICY_TIMEOUT_SECONDS = 600
ANSWER_LIMIT_BYTES = 1 << 20
APPLY_TIMEOUT_SECONDS = 60


def main(
    argv: Sequence[str],
    repo: Path = REPO,
    instruction: Path = INSTRUCTION,
    test_socket: Path = SOCKET,
) -> int:
    """The exit code of one rollout."""
    parser = argparse.ArgumentParser(prog="rollout")
    parser.add_argument("--policy", required=True, help="URL of the policy server")
    policy = parser.parse_args(argv).policy
    try:
        patch = ask_for_patch(policy, repo, instruction)
        hidden = ask_for_tests(policy)
    except (OSError, HTTPException, ValueError) as error:
        print(f"the policy gave no usable answer: {error}", file=sys.stderr)
        return ENVIRONMENT_FAULT
    if not apply(patch, repo):
        return FAILED
    return grade(hidden, test_socket)


def ask_for_patch(policy: str, repo: Path, instruction: Path) -> str:
    """The policy's answer to the instruction and the source it speaks of: a unified diff.

    Raises OSError or HTTPException when the policy cannot be reached or refuses, ValueError when
    its answer makes no sense.
    """
    question = {
        "fork_index": int(os.environ["PROMIGENCE_FORK_INDEX"]),
        "instruction": instruction.read_text(),
        "path": SOURCE,
        "source": (repo / SOURCE).read_text(),
    }
    patch = _ask(f"{policy}/patch", question).get("patch")
    if not isinstance(patch, str):
        raise ValueError("the answer has no patch")
    return patch


def ask_for_tests(policy: str) -> str:
    """The source of the hidden tests. Raises as `ask_for_patch` does."""
    tests = _ask(f"{policy}/tests").get("tests")
    if not isinstance(tests, str):
        raise ValueError("the answer has no tests")
    return tests


def apply(patch: str, repo: Path) -> bool:
    """Apply a unified diff to the project, wholly or not at all; it cannot reach outside of it."""
    git = subprocess.run(
        ["git", "apply", "-"],
        cwd=repo,
        input=patch,
        text=True,
        timeout=APPLY_TIMEOUT_SECONDS,
        check=False,
    )
    return git.returncode == 0


def grade(hidden: str, test_socket: Path) -> int:
    """Run the hidden tests from outside of the project."""
    with tempfile.TemporaryDirectory() as folder:
        tests = Path(folder) / "test_hidden.py"
        tests.write_text(hidden)
        try:
            return PASSED if run_tests([str(tests)], test_socket) == 0 else FAILED
        except (ConnectionError, FileNotFoundError) as error:
            print(f"the warm test process does not answer: {error}", file=sys.stderr)
            return ENVIRONMENT_FAULT


def _ask(url: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
    """POST `question`, or GET, as JSON through `http_proxy` where that is set."""
    body = None if question is None else json.dumps(question).encode()
    # The URL is the caller's own argument, so its scheme needs no check (S310).
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=POLICY_TIMEOUT_SECONDS) as response:  # noqa: S310
        answer = json.loads(response.read(ANSWER_LIMIT_BYTES))
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
