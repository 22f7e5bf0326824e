"""The zone as its tests and the rehearsal have it: a process of its own, and what it can be told to do."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

ZONE = "eu-central-1a"
REGION = "eu-central-1"
# Its storage is mounted and moto imported within seconds, and taken away again in less.
_UP_WITHIN_S, _DOWN_WITHIN_S = 60.0, 30.0
_TELL_S = 10.0
_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Zone:
    """A running zone. `url` is the endpoint of every AWS service."""

    url: str
    folder: Path

    @property
    def storage(self) -> Path:
        """Where its volumes and snapshots are."""
        return self.folder / "storage"

    def devices(self, instance_id: str) -> Path:
        """An instance's `/dev/disk/by-id`."""
        return self.folder / "devices" / instance_id

    def metadata_url(self, instance_id: str) -> str:
        """An instance's `http://169.254.169.254`."""
        return f"{self.url}/metadata/{instance_id}"

    def trouble(
        self,
        action: str,
        *,
        code: str | None = None,
        status: int = 503,
        times: int = 1,
        delay_s: float = 0.0,
        done: bool = False,
    ) -> None:
        """The next calls of an action are late, or answered with an error; `done`: after it was carried out."""
        told = {"code": code, "status": status, "times": times, "delay_s": delay_s, "done": done}
        self._tell("trouble", {"action": action, **told})

    def give_notice(self, instance_id: str, within_s: float, action: str = "terminate") -> None:
        """The instance's spot capacity is taken back."""
        told = {"instance_id": instance_id, "action": action, "within_s": within_s}
        self._tell("notice", told)

    def _tell(self, what: str, told: dict[str, Any]) -> None:
        with httpx2.Client(timeout=_TELL_S, trust_env=False) as client:
            client.post(f"{self.url}/zone/{what}", json=told).raise_for_status()


@contextmanager
def running(folder: Path) -> Iterator[Zone]:
    """A zone in a folder of its own; process, mounts and devices are gone at the end of the block.

    Raises subprocess.SubprocessError when it does not come up; it has said why on standard error.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    child = subprocess.Popen(
        (sys.executable, "-m", "drills.rehearsal.serve", str(folder), ZONE),
        cwd=_CHECKOUT,
        # moto brings 1,300 images and snapshots of other accounts along, unless it is told not to.
        env={**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # The terminal's Ctrl-C is for the rehearsal, which ends the zone last.
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield Zone(_address(child), folder)
    finally:
        child.stdin.close()
        try:
            child.wait(_DOWN_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise
        finally:
            child.stdout.close()


def _address(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    if not select.select([child.stdout], [], [], _UP_WITHIN_S)[0]:
        raise subprocess.TimeoutExpired(child.args, _UP_WITHIN_S)
    said = child.stdout.readline().strip()
    if not said:
        raise subprocess.CalledProcessError(child.wait(_DOWN_WITHIN_S), child.args)
    return said
