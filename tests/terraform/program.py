"""Terraform itself, shut off from the network and from its user's configuration."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# No provider but the one that is already running, and no question to anybody whether this Terraform is the newest.
CONFIGURATION = """\
disable_checkpoint = true
provider_installation {
  filesystem_mirror {
    path = "%s"
  }
}
"""
SECONDS = 120


@dataclass(frozen=True, slots=True)
class Terraform:
    binary: str
    scratch: Path
    providers: str = "{}"
    # By their data directories: all copies of a module call the same modules, by the same relative paths.
    initialised: set[Path] = field(default_factory=set)

    def run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs in `folder`, whose .terraform is kept in the scratch directory; gives what it printed, well or not."""
        return subprocess.run(
            [self.binary, *arguments],
            cwd=folder,
            env=self._environment(folder),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def initialise(self, folder: Path) -> None:
        """Once for a module or root and all its copies."""
        data = self._data(folder)
        if data in self.initialised:
            return
        done = self.run(folder, "init", "-backend=false", "-input=false", "-no-color")
        assert done.returncode == 0, done.stdout + done.stderr
        self.initialised.add(data)

    def validate(self, folder: Path) -> list[dict[str, Any]]:
        """What is wrong with an initialised folder: errors and warnings as Terraform words them."""
        done = self.run(folder, "validate", "-json")
        said = json.loads(done.stdout)
        assert isinstance(said["diagnostics"], list), said
        return said["diagnostics"]

    def _data(self, folder: Path) -> Path:
        return self.scratch / "data" / "_".join(folder.parts[-2:])

    def _environment(self, folder: Path) -> dict[str, str]:
        mirror = self.scratch / "mirror"
        mirror.mkdir(exist_ok=True)
        configuration = self.scratch / "terraform.rc"
        configuration.write_text(CONFIGURATION % mirror)
        return {
            "PATH": os.defpath,
            "HOME": str(self.scratch),
            "TF_CLI_CONFIG_FILE": str(configuration),
            "TF_DATA_DIR": str(self._data(folder)),
            "TF_IN_AUTOMATION": "1",
            "TF_REATTACH_PROVIDERS": self.providers,
            # It runs for seconds: a quarter of its processor time was for memory that it need not give back.
            "GOGC": "400",
        }


def find() -> str | None:
    """Where Terraform is on this machine; no package of any registry that set-up uses has it."""
    return shutil.which("terraform")
