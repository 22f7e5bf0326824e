"""Real machines keep the contract that the fakes keep (tests/contract/test_conformance.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from infra.bundles import LocalBundles
from infra.conformance import CHECKS, Subject
from infra.guest import SshGuest
from infra.image.images import LocalImages
from tests.e2e.conftest import SHAPE, Frozen, Host

# A barrier of 0.1 s is what the checks' time limits are meant for.
PATIENT_BARRIER_S = 0.1


@pytest.fixture(scope="module")
def subject(
    host: Host, images: LocalImages, bundles: LocalBundles, frozen: Frozen
) -> Iterator[Subject]:
    machines = host.machines()
    guest = SshGuest(lambda name: host.root / name)

    def until(condition: Callable[[], bool], seconds: float) -> bool:
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            if condition():
                return True
            time.sleep(0.05)
        return False

    def say(text: str, code: int, seconds: float) -> tuple[str, ...]:
        return ("/bin/sh", "-c", f"echo {text}; sleep {seconds}; exit {code}")

    made = Subject(
        machines=machines,
        guest=guest,
        bundles=bundles,
        clock=host.clock,
        image=images.boot_image("busybox"),
        shape=SHAPE,
        say=say,
        until=until,
        patience=max(1.0, frozen.barrier_s / PATIENT_BARRIER_S),
    )
    yield made
    made.clean_up()
    guest.shut_down()
    machines.close()


@pytest.mark.machines
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_real_machines(subject: Subject, check: Callable[[Subject], None]) -> None:
    check(subject)
