"""The modules and roots below terraform/."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def folders(pattern: str = "*/*") -> list[str]:
    """Every folder with a configuration, from terraform/ on: modules/network, envs/production."""
    top = ROOT / "terraform"
    return sorted({str(path.parent.relative_to(top)) for path in top.glob(f"{pattern}/*.tf")})
