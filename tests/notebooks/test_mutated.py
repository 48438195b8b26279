"""The mutants that `make mutants` runs are still lines of speclab."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from mutated import MUTANTS, ROOT

pytestmark = pytest.mark.notebook


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_and_names_a_notebook(mutant):
    source = Path(importlib.util.find_spec(mutant.module).origin).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1
    compile(source.replace(mutant.old, mutant.new), mutant.module, "exec")
    assert (ROOT / "notebooks" / f"{mutant.notebook}.ipynb").is_file()
