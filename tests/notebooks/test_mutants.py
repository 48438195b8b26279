"""A fault in speclab is noticed: some cell of a lesson fails, or prints something else than is saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.io
import pytest
import torch
from course import CHECKED, ROOT, printed, read, saved
from IPython.display import display

from speclab.tree import DraftTree

pytestmark = pytest.mark.notebook


def _with_siblings(tree: DraftTree) -> Any:
    return np.eye(len(tree), dtype=bool) | np.tril(np.ones((len(tree), len(tree)), dtype=bool))


MUTANTS: dict[str, tuple[str, str, Any]] = {
    "a mask that shows siblings": ("02_trees_masks_caches", "speclab.tree.DraftTree.ancestor_mask", _with_siblings),
    "a residual that is p": ("04_sampling", "speclab.engine.acceptance.residual", lambda p, q: p),
    "copies that are never found": (
        "05_training_free", "speclab.drafters.prompt_lookup.NgramIndex.matches", lambda *_, **__: [],
    ),
    "a replay that gains nothing": (
        "08_your_own_strategy", "speclab.analysis.replay.Replay.tokens_per_iteration", property(lambda _: 1.0),
    ),
}  # fmt: skip
"""What is wrong: the lesson that notices, the function of speclab, and what stands in for it."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_lesson_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stem, function, mutant = MUTANTS[name]
    monkeypatch.setattr(function, mutant)
    monkeypatch.setattr(plotly.io.renderers, "default", "json")
    torch.set_grad_enabled(True)
    names: dict[str, Any] = {"__name__": "__main__", "display": display}
    for cell in read(ROOT / "notebooks" / f"{stem}.ipynb").cells:
        if cell.cell_type != "code":
            continue
        try:
            output = printed(cell.source, names)
        except Exception:  # an assertion, or what follows from wrong values
            return
        if cell.source.startswith(CHECKED) and output != saved(cell):
            return
    pytest.fail(f"no cell of {stem} notices")
