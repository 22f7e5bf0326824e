"""Whether a part of the stack does its work: each probe asks for a piece of the real thing, and says what it misses."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx2
import redis
from redis.exceptions import RedisError

from app.ports import Clock
from infra.clock import HostClock
from infra.queue import CONNECT_TIMEOUT_S, CONTROL, CeleryBells, host_queue, redis_url
from infra.settings import Settings
from workers.pace import stamped

TICK_FRESH_S = 5.0
ANSWER_S = 2.0
HTTP_TIMEOUT_S = 5.0

Probe = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Asker:
    """What probes ask with. Each returns None when all is well, else a few words on what is not."""

    settings: Settings
    api_key: str
    bells: CeleryBells
    clock: Clock

    def probes(self) -> dict[str, Probe]:
        """By the name of the part. A broker of the operator's own is probed too, though it is no part of ours."""
        return {
            "redis": self.redis,
            "api": self.api,
            "worker": self.worker,
            "billing": self.billing,
            "flower": self.flower,
        }

    def redis(self) -> str | None:
        """It answers PING."""
        client = redis.Redis.from_url(
            redis_url(self.settings.broker_url), socket_timeout=CONNECT_TIMEOUT_S
        )
        try:
            client.ping()
        except RedisError as error:
            return f"no answer to PING: {type(error).__name__}"
        finally:
            client.close()
        return None

    def api(self) -> str | None:
        """It says that it is ready, and lets our key in, if we have one. Where hosts are stacks of their own, it may
        wait for them.
        """
        base = self.base_url
        ready = _get(f"{base}/readyz")
        if isinstance(ready, str):
            return ready
        if ready.status_code != 200:
            lacking = _unready_parts(ready)
            if "worker" in self.settings.parts or set(lacking) != {"hosts"}:
                told = ", ".join(f"{name} ({detail})" for name, detail in lacking.items())
                return f"not ready: {told or f'answered {ready.status_code}'}"
        if not self.api_key:
            return None
        hosts = _get(f"{base}/v1/hosts", headers={"Authorization": f"Bearer {self.api_key}"})
        if isinstance(hosts, str):
            return hosts
        return None if hosts.status_code == 200 else f"our key was answered {hosts.status_code}"

    def worker(self) -> str | None:
        """It takes a real task from its host's queue and does it."""
        return self._unanswered(host_queue(self.settings.host_id))

    def billing(self) -> str | None:
        """Its last tick is fresh, and it takes a real task from the queue of those who ask for places."""
        noted = stamped(self.settings.tick_file)
        if noted is None:
            return "has not ticked yet"
        age_s = (self.clock.boot_ns() - noted[1]) / 1e9
        if not 0 <= age_s <= TICK_FRESH_S:
            return f"last ticked {age_s:.0f} s ago"
        return self._unanswered(CONTROL)

    def flower(self) -> str | None:
        """It shows its page to who knows the password, and to nobody else."""
        password = self.settings.flower_password
        if password is None:
            return "it was given no password"
        url = f"http://127.0.0.1:{self.settings.flower_port}/"
        stranger = _get(url)
        if isinstance(stranger, str):
            return stranger
        if stranger.status_code != 401:
            return f"a stranger was answered {stranger.status_code}"
        known = _get(url, auth=(self.settings.flower_user, password.get_secret_value()))
        if isinstance(known, str):
            return known
        return None if known.status_code == 200 else f"we were answered {known.status_code}"

    def _unanswered(self, queue: str) -> str | None:
        token = secrets.token_hex(8)
        self.bells.echo(queue, token)
        if self.bells.echoed(queue, token, ANSWER_S):
            return None
        return f"a task on its queue was not answered within {ANSWER_S:g} s"

    @property
    def base_url(self) -> str:
        return f"http://{self.settings.api_host}:{self.settings.api_port}"


def complaint_of(settings: Settings, name: str) -> str | None:
    """What one part lacks, whoever started it: it is asked where the settings say that it listens. None: nothing."""
    bells = CeleryBells(settings.broker_url, at_once=1)
    try:
        return Asker(settings, "", bells, HostClock()).probes()[name]()
    finally:
        bells.close()


def wait_until_well(
    probes: dict[str, Probe],
    within_s: float,
    gone: Callable[[], bool],
    progress: Callable[[str], None],
) -> dict[str, str]:
    """Ask until all are well; returns what is not well after `within_s`, or at once when the stack is `gone`."""
    until = time.monotonic() + within_s
    ailing = dict.fromkeys(probes, "not asked yet")
    while ailing and time.monotonic() < until and not gone():
        for name in tuple(ailing):
            complaint = probes[name]()
            if complaint is None:
                del ailing[name]
                progress(name)
            else:
                ailing[name] = complaint
        if ailing:
            time.sleep(0.1)
    return ailing


def _get(
    url: str, headers: dict[str, str] | None = None, auth: tuple[str, str] | None = None
) -> httpx2.Response | str:
    try:
        # Nothing on the way to this machine itself is a proxy's business.
        with httpx2.Client(timeout=HTTP_TIMEOUT_S, trust_env=False) as client:
            return client.get(url, headers=headers, auth=auth, follow_redirects=True)
    except httpx2.HTTPError as error:
        return f"no answer: {type(error).__name__}"


def _unready_parts(answer: httpx2.Response) -> dict[str, str]:
    """What each lacks, by name; empty where the answer says nothing that we know."""
    try:
        parts = answer.json()["parts"]
        return {part["name"]: part["detail"] for part in parts if not part["ready"]}
    except (ValueError, KeyError, TypeError):
        return {}
