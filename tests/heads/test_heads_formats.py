"""Draft heads in others' formats: each against a plain reference, in use, and refused by name where they cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from reference.eagle3 import PlainHead
from support.head_folders import VARIANTS, write
from support.tiny import tiny

from speclab.heads.files import read_head
from speclab.heads.runner import HeadRows, HeadRunner
from speclab.models.runner import Runner

TEXT = [5, 9, 2, 40, 33, 7, 7, 1, 60, 12]
# Rows of a tree below the text: each its token and its parent among them, -1 the text's last entry.
TREE = [(17, -1), (3, -1), (25, 0), (9, 0), (4, 1), (49, 2)]
variants = pytest.mark.parametrize("variant", VARIANTS)


def target():
    return tiny("llama", num_hidden_layers=5)


def drafted(folder, model) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and logits by place of TEXT and TREE, by the runner: a prefix, the rest, a level at a time."""
    runner = Runner(model)
    head = HeadRunner(read_head(folder, runner), runner)
    columns = slice(None) if head.model.token_ids is None else head.model.token_ids
    runner.watch(head.config.layers)
    runner.logits(TEXT)
    states = runner.hidden.rows(0, len(TEXT) - 1, head.config.layers)
    first, fed = head.extend(TEXT[1:4], states[:3], last_only=False)
    second, more = head.extend(TEXT[4:], states[3:], last_only=False)
    rows = [first.rows[:, columns], second.rows[:, columns]]
    features = [*fed, *more]
    paths: list[tuple[int, ...]] = []
    for level in ((0, 1), (2, 3, 4), (5,)):
        start = len(paths)
        paths += [(*(paths[TREE[row][1]] if TREE[row][1] >= 0 else ()), row) for row in level]
        visible = np.array(
            [[column in path for column in range(start + len(level))] for path in paths[start:]]
        )
        parents = [features[len(TEXT) - 1 + TREE[row][1]] for row in level]
        places = [len(TEXT) - 2 + len(path) for path in paths[start:]]
        logits, out = head.forward(
            HeadRows([TREE[row][0] for row in level], torch.stack(parents), places, visible)
        )
        rows.append(logits.rows[:, columns])
        features += [*out]
    return torch.stack(features), torch.cat(rows)


def plain(folder, model) -> tuple[torch.Tensor, torch.Tensor]:
    head = PlainHead(folder, model)
    features, logits = (list(found) for found in head.rows(TEXT))
    for row in range(len(TREE)):
        path: list[int] = []
        while row >= 0:
            path = [TREE[row][0], *path]
            row = TREE[row][1]
        for found, new in zip((features, logits), head.rows(TEXT, tuple(path)), strict=True):
            found.append(new[-1])
    return torch.stack(features), torch.stack(logits)


@variants
def test_a_head_computes_what_its_format_says(tmp_path, variant):
    model = target()
    folder = write(tmp_path / "head", model, variant)
    for got, wanted in zip(drafted(folder, model), plain(folder, model), strict=True):
        assert got.shape == wanted.shape
        assert (got - wanted).abs().max() < 1e-5 * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize(
    ("ids", "layers"),
    [
        ({}, (2, 2, 2)),
        ({"eagle_aux_hidden_state_layer_ids": [4, 1, 2]}, (1, 2, 4)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 2]}}, (2, 3, 4)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}}, (2, 3, 4)),
    ],
)
def test_layers_are_counted_as_their_folder_does_and_joined_in_their_order(tmp_path, ids, layers):
    config = read_head(write(tmp_path / "head", (model := target()), **ids), Runner(model)).config
    assert config.layers == layers
