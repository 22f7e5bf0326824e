"""What a host's firewall can do because the dialler is a user of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

TOOLS = ("unshare", "iptables", "ip")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes networks and rules")
@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}")
def test_a_rule_by_user_shuts_it_out_even_of_what_our_own_checks_let_through() -> None:
    done = subprocess.run(
        ("unshare", "--net", sys.executable, "-m", "tests.integration.firewalled"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "unshare failed" in done.stderr or ("iptables" in done.stderr and "non-zero" in done.stderr):
        pytest.skip("here one may make no networks, or no rules that tell users apart")
    assert json.loads(done.stdout) == {
        "before": ["connected", "connected"],
        "after": ["connected", "connection_refused"],
    }, done.stderr
