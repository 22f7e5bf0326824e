"""The page of the settings has each of them, with its default, and says which are secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from pydantic import SecretStr

from infra.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
ROW = re.compile(r"^\| ((?:\**`\w+`\**(?:, )?)+) \| ([^|]*) \|", re.MULTILINE)


def rows() -> Iterator[tuple[list[str], str]]:
    for named, default in ROW.findall(PAGE.read_text()):
        yield named.split(", "), default


def test_every_setting_has_one_place() -> None:
    said = [name.strip("*`") for names, _ in rows() for name in names]
    assert sorted(said) == sorted(Settings.model_fields)


def test_those_in_bold_are_the_secrets() -> None:
    bold = {name.strip("*`") for names, _ in rows() for name in names if name.startswith("**")}
    fields = Settings.model_fields.items()
    assert bold == {name for name, field in fields if SecretStr in get_args(field.annotation)}


def test_a_number_or_a_word_is_the_default_that_the_code_has() -> None:
    """None, and what is found out when it is asked for, are said in words."""
    for names, told in rows():
        for name in (each.strip("*`") for each in names):
            default = Settings.model_fields[name].default
            if isinstance(default, int | str):
                assert str(default) in told, name
            elif isinstance(default, tuple) and default:
                assert json.dumps(default, separators=(",", ":")) in told, name
