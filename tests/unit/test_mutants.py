"""The list of mutants fits the code that it mutates."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.__main__ import EVERY, ROOT
from tests.mutants.mutant import Mutant, applied


@pytest.mark.parametrize("mutant", EVERY, ids=lambda mutant: mutant.law)
def test_a_mutant_applies_once_and_is_still_a_program(mutant: Mutant) -> None:
    source = (ROOT / mutant.path).read_text()
    assert ast.dump(ast.parse(applied(mutant, source))) != ast.dump(ast.parse(source))
    assert (ROOT / mutant.tests[0]).is_file()


def test_a_list_that_is_out_of_date_is_an_error() -> None:
    stale = Mutant("app/domain/ledger.py", "no such text", "", "1", ())
    with pytest.raises(ValueError, match="found 0 times"):
        applied(stale, "anything")


def test_no_mutant_is_listed_twice() -> None:
    assert len({(mutant.path, mutant.old, mutant.new) for mutant in EVERY}) == len(EVERY)
