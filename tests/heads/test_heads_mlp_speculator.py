"""IBM's MLP speculator: by its formula, from its folder, in use, and refused where it does not fit."""

from __future__ import annotations

import json
from math import sqrt

import pytest
import torch
from safetensors.torch import save_file
from support.heads import paths_below, rows_of
from support.pairs import PROMPT, library_text, target_of
from support.records import assert_consistent, paths_of
from support.refusals import refused

import speclab
from speclab.drafters import cost
from speclab.errors import HeadMismatchError

VOCAB = 16
STAGES = 3
INNER = 24
TEXT = [token % VOCAB for token in PROMPT]
tied_or_not = pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])


def target():
    return target_of("llama", VOCAB)


def stage_weights(size):
    """One stage, by the names of a published folder; `size`: of the state that it reads."""
    return {
        "emb.weight": torch.randn(VOCAB, INNER),
        "proj.weight": 0.3 * torch.randn(INNER, size),
        "ln.weight": 1 + 0.3 * torch.randn(INNER),
        "ln.bias": 0.3 * torch.randn(INNER),
        "head.weight": torch.randn(VOCAB, INNER),
    }


def stages(tied):
    """The weights of every stage; tied ones differ in the first projection alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = stage_weights(target().config.hidden_size)
        later = [stage_weights(INNER) for _ in range(STAGES - 1)]
    if tied:
        later = [first | {"proj.weight": later[0]["proj.weight"]}] * (STAGES - 1)
    return [first, *later]


def tensors(tied, *, copies=False):
    """As in a folder; safetensors keep one copy of what stages share, a pickle may keep all."""
    named = {}
    for stage, weights in enumerate(stages(tied)):
        for name, tensor in weights.items():
            part, kind = name.split(".")
            if not tied or copies or stage == 0 or (stage == 1 and part == "proj"):
                named[f"speculator.{part}.{stage}.{kind}"] = tensor.clone()
    return named


def folder(path, weights, *, tied, pickled=False, **changes):
    path.mkdir()
    config = {
        "architectures": ["MLPSpeculatorPreTrainedModel"],
        "model_type": "mlp_speculator",
        "vocab_size": VOCAB,
        "emb_dim": target().config.hidden_size,
        "inner_dim": INNER,
        "n_predict": STAGES,
        "n_candidates": 5,
        "top_k_tokens_per_head": [4, 3, 2],
        "tie_weights": tied,
        "scale_input": False,
        "torch_dtype": "float16",
        "transformers_version": "4.38.2",
    }
    (path / "config.json").write_text(json.dumps(config | changes))
    if pickled:
        torch.save(weights, path / "pytorch_model.bin")
    else:
        save_file(weights, path / "model.safetensors")
    return path


def by_the_formula(tied, state, tokens, *, scaled):
    """Logits after a path: the target's state before its first token, then a stage a token."""
    x = state
    if scaled:
        x = x / (x.square().mean() + 1e-6).sqrt() / sqrt(2)
    state_weight = 0.5 ** (0.5 / STAGES)
    token_weight = sqrt((1 - state_weight**2) * INNER / 2)
    weights = stages(tied)
    for depth, token in enumerate(tokens):
        stage = weights[min(depth, STAGES - 1)]
        x = stage["proj.weight"] @ x + token_weight / state_weight * stage["emb.weight"][token]
        x = stage["ln.weight"] * x / (x.square().mean() + 1e-6).sqrt() + stage["ln.bias"]
        x = x * (1 + torch.erf(x / sqrt(2))) / 2
    return stage["head.weight"] @ x


@tied_or_not
@pytest.mark.parametrize("scaled", [False, True])
def test_rows_are_those_of_the_formula_and_deeper_ones_repeat_the_last_stage(
    tmp_path, tied, scaled
):
    weights = tensors(tied)
    heads = folder(tmp_path / "mlp", weights, tied=tied, scale_input=scaled)
    (head,) = speclab.load_pair(target=target(), heads=heads).heads
    states = target()(torch.tensor([TEXT]), output_hidden_states=True).hidden_states[-1][0].detach()
    tree = paths_below(TEXT[-1])
    _, rows = rows_of(head, TEXT, states[:-1], tree)
    for place, row in enumerate(rows[: len(TEXT) - 2]):  # each place of the text begins anew
        wanted = by_the_formula(tied, states[place], [TEXT[place + 1]], scaled=scaled)
        torch.testing.assert_close(row, wanted, atol=1e-4, rtol=1e-4)
    paths = list(paths_of(tree))
    assert max(len(path) for path in paths) > STAGES
    for path, row in zip(paths, rows[-len(tree) :], strict=True):
        wanted = by_the_formula(tied, states[-2], [TEXT[-1], *path], scaled=scaled)
        torch.testing.assert_close(row, wanted, atol=1e-4, rtol=1e-4)


@tied_or_not
def test_every_strategy_that_drafts_costs_replays_and_forks_with_it(tmp_path, tied):
    pair = speclab.load_pair(
        target=target(), heads=folder(tmp_path / "mlp", tensors(tied), tied=tied)
    )
    text = library_text(target(), TEXT, 16)
    for strategy in (
        speclab.LinearSpeculation(draft_tokens=5),
        speclab.DynaTree(node_budget=8),
        speclab.DraftHead(node_budget=8),
    ):
        session = speclab.Session(pair, strategy, TEXT, max_new_tokens=16, check=True)
        while not session.done:
            assert_consistent(session.step())
        assert session.token_ids == text
        for step in session.steps:
            assert set(step.tree.source[1:]) <= {"mlp"}
        assert max(len(step.tree) for step in session.steps) > 1
        fork = session.fork(at=1)
        fork.run()
        assert fork.token_ids == text
        replay = speclab.replay(session, strategy)
        assert [row.committed for row in replay.passes] == [s.committed for s in session.steps]
        assert replay.draft_calls == session.metrics.draft_calls
    assert cost.seconds(pair.heads[0], 4) > 0
    assert "block head" in speclab.DDTree().missing(pair.offer)


def test_a_pickle_with_a_copy_of_every_tied_stage_is_the_same_head(tmp_path):
    kept_once = folder(tmp_path / "once", tensors(tied=True), tied=True)
    weights = tensors(tied=True, copies=True)
    repeated = folder(tmp_path / "all", weights, tied=True, pickled=True)
    first, second = speclab.load_pair(target=target(), heads=[kept_once, repeated]).heads
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], tensor)
    weights["speculator.emb.2.weight"] += 1
    with refused(HeadMismatchError, "wrong", "emb.2"):
        speclab.load_pair(target=target(), heads=folder(tmp_path / "wrong", weights, tied=True))


@pytest.mark.parametrize(
    ("changes", "error", "word"),
    [
        ({"emb_dim": 40}, HeadMismatchError, "40"),
        ({"n_predict": 4}, HeadMismatchError, "emb.3"),
        ({"activation": "relu"}, speclab.errors.UnsupportedModelError, "activation"),
        ({"architectures": ["OtherSpeculator"]}, speclab.errors.UnsupportedModelError, "Other"),
    ],
)
def test_a_config_of_another_head_is_refused(tmp_path, changes, error, word):
    heads = folder(tmp_path / "mlp", tensors(tied=False), tied=False, **changes)
    with refused(error, "mlp", word):
        speclab.load_pair(target=target(), heads=heads)
