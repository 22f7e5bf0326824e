"""Logs: what is named like a secret is not in them."""

from __future__ import annotations

import logging

from infra.logs import without_secrets


def test_secrets_are_blanked_whoever_passes_them() -> None:
    event = {"event": "started", "api_key": "pmg_1", "Flower_Password": "x", "host_id": "h"}

    shown = without_secrets(logging.getLogger(), "info", event)

    assert shown == {
        "event": "started",
        "api_key": "(not logged)",
        "Flower_Password": "(not logged)",
        "host_id": "h",
    }
