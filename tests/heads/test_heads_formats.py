"""Draft heads in others' formats: each against a plain reference, in use, and refused by name where they cannot be."""

from __future__ import annotations

import pytest
import torch
from reference.eagle3 import PlainHead
from support.head_folders import VARIANTS, write
from support.heads import rows_of
from support.records import paths_of
from support.tiny import tiny

from speclab.heads.eagle import EagleRunner
from speclab.heads.files import read_head
from speclab.models.runner import Runner
from speclab.tree import DraftTree

TEXT = [5, 9, 2, 40, 33, 7, 7, 1, 60, 12]
TREE = DraftTree.of([12, 17, 3, 25, 9, 4, 49], [-1, 0, 0, 1, 1, 2, 3], [0.0] * 7, "head")
variants = pytest.mark.parametrize("variant", VARIANTS)


def target():
    return tiny("llama", num_hidden_layers=5)


def drafted(folder, model) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and logits by place of TEXT and node of TREE, by the runner."""
    runner = Runner(model)
    head = EagleRunner(read_head(folder, runner), runner)
    runner.watch(head.config.layers)
    runner.logits(TEXT)
    states = runner.hidden.rows(0, len(TEXT) - 1, head.config.layers)
    features, rows = rows_of(head, TEXT, states, TREE)
    return features, rows if head.model.token_ids is None else rows[:, head.model.token_ids]


def plain(folder, model) -> tuple[torch.Tensor, torch.Tensor]:
    head = PlainHead(folder, model)
    features, logits = (list(found) for found in head.rows(TEXT))
    for path in [*paths_of(TREE)][1:]:
        for found, new in zip((features, logits), head.rows(TEXT, path), strict=True):
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
