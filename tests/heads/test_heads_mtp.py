"""MTP layers as a draft head, against transformers' own drafting with them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.heads import paths_below, random_head, rows_of
from support.pairs import PROMPT, SMALL, assert_cache_is_fresh, library_text, run_and_check_caches
from support.records import paths_of
from support.refusals import refused
from support.tiny import make_loud, tiny
from transformers import modeling_layers
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3PreTrainedModel
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoePreTrainedModel

import speclab
from speclab.errors import UnsupportedModelError
from speclab.pair import ModelPair

TEXT = [token % SMALL for token in PROMPT]
KINDS = [
    ("deepseek_v3", 1),
    ("deepseek_v3", 2),
    ("deepseek_v3", 3),
    ("glm4_moe", 1),
    ("glm4_moe", 4),
    ("mellum", 1),
]
kinds = pytest.mark.parametrize(("family", "layers"), KINDS)
TREES = {
    "chain": speclab.LinearSpeculation(draft_tokens=5),
    "best first": speclab.DraftHead(node_budget=14, depth=5, children=3),
    "dynatree": speclab.DynaTree(node_budget=16, stop_probability=0.0, prune_probability=0.0),
    "dynatree as in the paper": speclab.DynaTree.paper(),
    "routed": speclab.DualDraft(node_budget=8, depth=4, children=3),
}


def fitted(model: torch.nn.Module, layers: int) -> MtpModel:
    """MTP layers that have learned some of the target's own text, so that it accepts some of what they draft."""
    mtp = MtpModel(model, layers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        make_loud(mtp.layers)
    ids = torch.tensor([TEXT + library_text(model, TEXT, 40)])
    states = model(ids, output_hidden_states=True).hidden_states[-1].detach()[:, : -layers - 1]
    optimizer = torch.optim.Adam(mtp.layers.parameters(), lr=0.02)
    for _ in range(25):
        losses = []
        for wanted, logits in enumerate(
            library_logits(mtp, states, ids[0, 1:].tolist(), layers - 1), 2
        ):
            losses.append(
                torch.nn.functional.cross_entropy(logits, ids[0, wanted : wanted + len(logits)])
            )
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()
    return mtp


def library_logits(
    mtp: MtpModel, states: torch.Tensor, tokens: list[int], depth: int
) -> list[torch.Tensor]:
    """What each layer down to a depth says of a text in one pass: it reads the tokens from its
    number on.

    Below the last layer's depth that one reads more tokens, each with what it made of the place
    before.
    """
    last = len(mtp.layers) - 1
    reads = states
    logits = []

    def run(layer: int, reads: torch.Tensor) -> torch.Tensor:
        count = reads.shape[1]
        ids = torch.tensor([tokens[layer : layer + count]])
        places = torch.arange(layer + 1, layer + 1 + count)
        out = mtp.forward_layer(
            layer, reads, places[None], MtpCache(config=mtp.config), input_ids=ids
        )
        logits.append(mtp.shared_head(out[0]))
        return out

    for layer in range(min(depth, last) + 1):
        read = reads
        reads = run(layer, reads)
    for _ in range(depth - last):
        read = torch.cat((read, reads[:, -1:]), dim=1)
        reads = run(last, read)
    return logits


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Writes tiny checkpoints with MTP layers as their families' are laid out, and loads them."""

    @cache
    def folder(family: str, layers: int) -> Path:
        model = tiny(family, vocab=SMALL, num_mtp_layers=layers)
        path = tmp_path_factory.mktemp(family)
        mtp = fitted(model, layers)
        model.save_pretrained(path)
        tensors = load_file(path / "model.safetensors")
        for name, tensor in mtp.layers.state_dict().items():
            number, part = name.split(".", 1)
            behind = f"model.layers.{2 + int(number)}.{part.removeprefix('mtp_block.')}"
            tensors[f"mtp.layers.{name}" if family == "mellum" else behind] = tensor
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return path

    def loaded(family: str, layers: int, heads: object = "mtp", **options) -> ModelPair:
        return speclab.load_pair(target=folder(family, layers), heads=heads, **options)

    with pytest.MonkeyPatch.context() as patch:
        # The published checkpoints' own numbers, such as 61 of DeepSeek-V3, do not fit a model of
        # two layers.
        for kind in (DeepseekV3PreTrainedModel, Glm4MoePreTrainedModel):
            patch.setattr(kind, "_keys_to_ignore_on_load_unexpected", [r"model\.layers\.[2-9]\."])
        yield loaded


NAMES = list(TREES)
RUNS = []
for place, (family_of, layers_of) in enumerate(KINDS):
    RUNS.append((family_of, layers_of, NAMES[place % 5]))
    RUNS.append((family_of, layers_of, NAMES[(place + 2) % 5]))


@pytest.mark.wide
@pytest.mark.parametrize(("family", "layers", "name"), RUNS)
def test_the_text_is_the_target_s_and_every_cache_as_after_one_pass(load, family, layers, name):
    pair = load(family, layers, heads=["mtp", random_head(tiny("llama", vocab=SMALL))])
    model = pair.target.model
    session = speclab.Session(pair, TREES[name], TEXT, max_new_tokens=24)
    assert run_and_check_caches(session).token_ids == library_text(model, TEXT, 24)
    fork = session.fork(at=3)
    assert_cache_is_fresh(fork.pair.heads[0], fork.prompt_ids + fork.token_ids, model)
    fork.run()
    assert fork.token_ids == session.token_ids


@kinds
def test_rows_of_a_tree_are_their_paths_by_transformers(load, family, layers):
    target = (pair := load(family, layers)).target
    head = pair.heads[0]
    mtp = MtpModel.from_pretrained(target.model)
    target.watch((-1,))
    target.logits(TEXT)
    states = target.hidden.rows(0, len(TEXT) - 1, (-1,))
    tree = paths_below(TEXT[-1])
    _, rows = rows_of(head, TEXT, states, tree)
    for path, row in zip(paths_of(tree), rows[-len(tree) :], strict=True):
        wanted = library_logits(mtp, states[None], [*TEXT[1:], *path], len(path))[-1][-1]
        torch.testing.assert_close(row, wanted, atol=2e-5, rtol=2e-5)


def test_targets_without_mtp_layers_are_refused(tmp_path, load, monkeypatch):
    tiny("glm4_moe", num_mtp_layers=1).save_pretrained(tmp_path)
    without = [(None, "family gpt_neox"), (tiny("llama"), "llama"), (tmp_path, "missing")]
    without.append((tiny("glm4_moe", num_mtp_layers=1), "not loaded"))
    for target, reason in without:
        with refused(UnsupportedModelError, "MTP layers", reason):
            speclab.load_pair(target=target, heads="mtp")
    monkeypatch.delattr(modeling_layers, "MtpModel")
    with refused(UnsupportedModelError, "MtpModel"):
        load("glm4_moe", 1)
