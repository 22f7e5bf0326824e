"""The one way out of a real machine: what was allowed, through the proxy, and nothing else."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from app.domain.checks import marker_exit, on_channel
from infra.egress import EgressProxy, Reach
from infra.guest import SshGuest
from tests.e2e.conftest import Frozen
from tests.e2e.inside import Machine, shell

pytestmark = pytest.mark.machines

PROXY = "export http_proxy=http://127.0.0.1:3128;"


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers with the path that was asked for."""

    def do_GET(self) -> None:
        body = f"{self.path} by {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """`host:port` of a server on this host."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture
def closed(machine: Machine) -> Iterator[Machine]:
    """A machine that may reach nothing, before and after."""
    machine.guest.allow(machine.name, ())
    yield machine
    machine.guest.allow(machine.name, ())


def fetch(machine: Machine, url: str) -> tuple[int | None, str]:
    end = machine.run(f"{PROXY} wget -q -O - {url}")
    return end.exit_code, (end.stdout + end.stderr).decode()


def test_nothing_is_reached_by_default(closed: Machine, target: str) -> None:
    assert closed.says("ls /sys/class/net") == "lo"
    assert closed.run(f"wget -q -O - http://{target}/").exit_code == 1
    assert closed.run("wget -q -O - http://192.0.2.1/").exit_code == 1
    assert fetch(closed, f"http://{target}/")[0] == 1


def test_what_is_allowed_is_reached_until_it_is_closed(closed: Machine, target: str) -> None:
    closed.guest.allow(closed.name, (target,))
    assert fetch(closed, f"http://{target}/path?q") == (0, f"/path?q by {target}")
    closed.guest.allow(closed.name, ())
    assert fetch(closed, f"http://{target}/")[0] == 1


def test_what_is_not_allowed_is_refused_told_and_kept(closed: Machine, target: str) -> None:
    closed.guest.allow(closed.name, (target, "169.254.169.254:80"))
    for url in ("http://127.0.0.1:1/", "http://169.254.169.254/latest", "http://192.0.2.1:9/"):
        code, said = fetch(closed, url)
        assert code == 1
        assert "403" in said
    log = closed.guest.egress_log(closed.name)
    assert [(line["target"], line["what"]) for line in log[-3:]] == [
        ("127.0.0.1:1", "refused"),
        ("169.254.169.254:80", "refused"),
        ("192.0.2.1:9", "refused"),
    ]


def test_a_tunnel_carries_bytes_both_ways(closed: Machine, target: str) -> None:
    closed.guest.allow(closed.name, (target,))
    asked = f"CONNECT {target} HTTP/1.1\\r\\n\\r\\nGET /through HTTP/1.0\\r\\nHost: t\\r\\n\\r\\n"
    said = closed.says(f"printf '{asked}' | nc -w 20 127.0.0.1 3128")
    assert "200 Connection established" in said
    assert said.endswith("/through by t")


def test_many_at_once_get_their_own_answers(closed: Machine, target: str) -> None:
    closed.guest.allow(closed.name, (target,))
    ask = f"for i in $(seq 8); do wget -q -O /tmp/got$i http://{target}/$i & done; wait"
    assert closed.run(f"{PROXY} {ask}").exit_code == 0
    assert closed.says("for i in $(seq 8); do cut -d' ' -f1 /tmp/got$i; done").split() == [
        f"/{number}" for number in range(1, 9)
    ]


def test_the_way_out_is_there_again_on_a_new_channel(fork: Machine, target: str) -> None:
    fork.guest.allow(fork.name, (target,))
    fork.run("kill -9 -1")
    assert fetch(fork, f"http://{target}/again") == (0, f"/again by {target}")


def test_a_worker_that_takes_over_opens_the_way_again_and_tells_the_gap(
    fork: Machine, target: str
) -> None:
    fork.guest.allow(fork.name, (target,))
    fork.says("true")
    assert fork.guest.egress_log(fork.name) == ()
    fork.guest.close(fork.name)
    successor = SshGuest(fork.inside.machine_dir, egress=EgressProxy(Reach(["127.0.0.1:*"]).dial))
    try:
        successor.attach(fork.name)
        successor.allow(fork.name, (target,))
        command = shell(f"{PROXY} wget -q -O - http://{target}/still")
        successor.start(fork.name, "again", command)
        end = successor.end(fork.name, "again", wait_s=fork.inside.patience_s)
        assert end is not None
        assert end.stdout.decode() == f"/still by {target}"
        assert [line["what"] for line in successor.egress_log(fork.name)] == ["proxy_away"]
    finally:
        successor.shut_down()


@pytest.mark.parametrize("open_too", [False, True])
def test_the_contract_holds_with_and_without_a_way_out(
    fork: Machine, frozen: Frozen, target: str, open_too: bool
) -> None:
    allowed = (target,) if open_too else ()
    fork.guest.allow(fork.name, allowed)
    marker = "ab" * 16
    seen = fork.guest.probe(fork.name, marker, marker_exit(marker), fork.inside.patience_s)
    checks = on_channel(seen, marker, frozen.bundle.disk_id, allowed, 0.0)
    assert [check.sound for check in checks] == [True, True, True]
    assert len(fork.guest.egress_log(fork.name)) == int(open_too)
