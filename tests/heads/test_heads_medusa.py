"""Medusa heads: by hand, from both published layouts, and in use."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from support.pairs import PROMPT, library_text, target_of
from support.records import assert_consistent

import speclab
from speclab.engine.session import Session

VOCAB = 16
HEADS = 3


def tensors(size: int) -> dict[str, torch.Tensor]:
    """Weights by FasterDecoding's names: two residual blocks and a matrix for each head."""
    made = {}
    for head in range(HEADS):
        for block in range(2):
            made[f"{head}.{block}.linear.weight"] = 0.3 * torch.randn(size, size)
            made[f"{head}.{block}.linear.bias"] = 0.1 * torch.randn(size)
        made[f"{head}.2.weight"] = torch.randn(VOCAB, size)
    return made


def for_vllm(name: str) -> str:
    head, block, *kind = name.split(".")
    if len(kind) == 1:
        return f"lm_heads.{head}.weight"
    return f"blocks.{head}.layers.{block}.{kind[-1]}"


def folder(path, weights, config):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    save_file(
        weights,
        path
        / ("medusa_lm_head.safetensors" if "medusa_num_heads" in config else "model.safetensors"),
    )
    return path


@pytest.fixture
def model():
    return target_of("llama", VOCAB)


@pytest.fixture
def weights(model):
    torch.manual_seed(3)
    return tensors(model.config.hidden_size)


def published(path, weights):
    config = {
        "medusa_num_heads": HEADS,
        "medusa_num_layers": 2,
        "base_model_name_or_path": "some/llama",
    }
    return folder(path / "medusa", weights, config)


def test_each_depth_has_the_residual_head_of_its_number_on_the_state_before_the_root(
    tmp_path, model, weights
):
    pair = speclab.load_pair(target=model, heads=published(tmp_path, weights))
    text = [token % VOCAB for token in PROMPT]
    states = model(torch.tensor([text]), output_hidden_states=True).hidden_states[-1][0]
    on = pair.target
    on.watch(pair.heads[0].layers)
    on.logits(text[:-1])
    runner = pair.heads[0]
    first = runner.after_text(text)
    rows = runner.at_depths(range(HEADS), None, 0).rows
    assert torch.equal(first.rows[0], rows[0])
    for head in range(HEADS):
        x = states[len(text) - 2]  # of the token before the root
        for block in range(2):
            z = (
                weights[f"{head}.{block}.linear.weight"] @ x
                + weights[f"{head}.{block}.linear.bias"]
            )
            x = x + z / (1 + (-z).exp())
        torch.testing.assert_close(
            rows[head], (weights[f"{head}.2.weight"] @ x).detach(), atol=1e-4, rtol=1e-4
        )


def test_the_text_is_the_targets_and_both_layouts_draft_the_same(tmp_path, model, weights):
    sizes = {"model_type": "medusa", "architectures": ["MedusaModel"], "num_heads": HEADS,
             "medusa_num_layers": 2, "hidden_size": model.config.hidden_size, "vocab_size": VOCAB}  # fmt: skip
    renamed = {for_vllm(name): tensor for name, tensor in weights.items()}
    folders = [published(tmp_path, weights), folder(tmp_path / "vllm", renamed, sizes)]
    prompt = [token % VOCAB for token in PROMPT]
    text = library_text(model, prompt, 24)
    for strategy in (
        speclab.LinearSpeculation(draft_tokens=3),
        speclab.DDTree(node_budget=8),
        speclab.DraftHead(node_budget=8),
    ):
        trees = []
        for heads in folders:
            session = Session(
                speclab.load_pair(target=model, heads=heads), strategy, prompt, max_new_tokens=24
            )
            while not session.done:
                assert_consistent(session.step())
            assert session.token_ids == text
            fork = session.fork(at=2)
            fork.run()
            assert fork.token_ids == text
            trees.append([step.tree.token.tolist() for step in session.steps])
        assert trees[0] == trees[1]
        assert max(map(len, trees[0])) > 1
