"""Draft heads on disk: our own format, draft vocabularies, files that do not fit.

Others' formats: `head_formats`.
"""

from __future__ import annotations

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.head_folders import SOME, write
from support.heads import random_head
from support.refusals import refused
from support.tiny import tiny

import speclab
from speclab.errors import HeadMismatchError, ModelNotFoundError
from speclab.heads.files import read_head
from speclab.heads.runner import HeadRunner
from speclab.models.runner import Runner
from training.head_export import save_head

EAGLE = "SafeAILab, EAGLE of LLaMA 2"
TEXT = [5, 9, 2, 40, 33, 7, 7, 1]


def states_of(target, text=TEXT) -> torch.Tensor:
    with torch.no_grad():
        return target(torch.tensor([text]), output_hidden_states=True).hidden_states[-1][0]


def answers(head, target) -> list:
    """Logits and feature after every place of TEXT but the first."""
    runner = HeadRunner(head, Runner(target))
    states = states_of(target)
    return [runner.extend([token], states[[place]]) for place, token in enumerate(TEXT[1:])]


@pytest.mark.parametrize(
    ("ids", "layers", "own_output"), [(None, (-1,), False), (SOME, (1, 2), True)]
)
def test_what_was_saved_is_read_again(tmp_path, layers, ids, own_output):
    target = tiny("llama")
    head = random_head(target, 1, "prose", ids, layers=layers, own_output=own_output).half().float()
    save_head(head, tmp_path / "prose")
    again = read_head(tmp_path / "prose", Runner(target))
    assert again.config == head.config
    for name, tensor in head.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor, rtol=1e-3, atol=1e-3)
    assert again.token_ids is None if ids is None else again.token_ids.tolist() == ids
    pair = speclab.load_pair(target=target, heads=[str(tmp_path / "prose"), head])
    assert [runner.name for runner in pair.heads] == ["prose", "prose"]
    assert pair.head_names == ("prose 0", "prose 1")


@pytest.mark.parametrize(
    ("family", "own_output"), [("llama", False), ("gpt_neox", True), ("phi", False)]
)
def test_a_draft_vocabulary_is_a_softmax_over_its_tokens_by_the_targets_ids(family, own_output):
    target = tiny(family).requires_grad_(requires_grad=False)
    head = random_head(target, 1, ids=SOME, own_output=own_output).requires_grad_(
        requires_grad=False
    )
    output = target.get_output_embeddings()
    for answer, feature in answers(head, target):
        feature = feature.clone()  # outside inference mode
        own = head.lm_head(feature) if own_output else output(feature)[SOME]
        log_probs = dict(zip(SOME, own.log_softmax(-1).tolist(), strict=True))
        for k in (3, len(SOME), 99):
            (ids,), (found,) = answer.topk(k)
            best = sorted(log_probs.items(), key=lambda pair: -pair[1])[:k]
            assert ids.tolist() == [token for token, _ in best]
            assert found.tolist() == pytest.approx([one for _, one in best], abs=1e-4)
        assert answer.choice.tolist() == [best[0][0]]
        assert answer.rows.shape == (1, 64)
        assert answer.rows[0].isfinite().nonzero().flatten().tolist() == sorted(SOME)


def test_a_target_with_several_states_per_token_is_refused():
    target = tiny(
        "gemma3n_text",
        vocab_size_per_layer_input=64,
        hidden_size_per_layer_input=8,
        num_hidden_layers=4,
        intermediate_size=[48] * 4,
        num_kv_shared_layers=1,
        layer_types=["sliding_attention", "full_attention"] * 2,
        laurel_rank=4,
        activation_sparsity_pattern=[0.0] * 4,
    )
    with refused(HeadMismatchError, "hidden states"):
        speclab.load_pair(target=target, heads=random_head(tiny("llama")))


def test_tokens_that_the_pair_does_not_have_are_never_proposed():
    target = tiny("llama")
    runner = HeadRunner(random_head(target, 1, ids=SOME), Runner(target))
    runner.vocab_size = 30
    answer, _ = runner.extend(TEXT[1:3], states_of(target)[:2])
    assert set(answer.topk(99)[0][0].tolist()) == {token for token in SOME if token < 30}


def test_a_vocabulary_gains_the_tokens_of_the_text_and_loses_those_of_one_that_was_left():
    """A gained token has the logit of its row of the target's output matrix."""
    target = tiny("llama")
    on = Runner(target)
    every, head = (random_head(target, 1, ids=ids, gains_tokens=True) for ids in (None, SOME))
    whole, runner = (HeadRunner(each, on) for each in (every, head))
    on.watch(head.config.layers)
    on.logits(TEXT)
    for text in (TEXT[:4], TEXT, [*TEXT[:5], 3, 62]):
        known = sorted({*SOME, *text})
        rows = runner.after_text(text).rows[0]
        assert rows.isfinite().nonzero().flatten().tolist() == known
        wanted = whole.after_text(text).rows[0]
        torch.testing.assert_close(rows[known], wanted[known], rtol=1e-4, atol=1e-5)
        runner.keep_path([0])
        whole.keep_path([0])
        runner = runner.fork(min(4, runner.length), on)
        whole = whole.fork(runner.length, on)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"d2t": torch.full((8,), 60)}, "d2t"),
        ({"d2t": torch.arange(8).neg()}, "d2t"),
        ({"lm_head.weight": torch.ones(9, 32)}, "lm_head"),
    ],
)
def test_maps_that_name_no_vocabulary(tmp_path, change, named):
    save_head(random_head(tiny("llama"), 1, "prose", SOME), tmp_path / "prose")
    file = tmp_path / "prose" / "head.safetensors"
    save_file(load_file(file) | change, file)
    with refused(HeadMismatchError, "prose", named):
        load(tmp_path / "prose")


def saved(folder, of, /, **changes: object):
    save_head(random_head(of, 1, "prose"), folder)
    config = json.loads((folder / "head.json").read_text())
    (folder / "head.json").write_text(json.dumps(config | changes))
    return folder


def load(folder, target=None):
    return speclab.load_pair(target=target or tiny("llama"), heads=folder)


@pytest.mark.parametrize(
    ("error", "changes", "word"),
    [
        (HeadMismatchError, {"hidden_size": 64}, "64"),
        (HeadMismatchError, {"target": "llama-70b"}, "llama-70b"),
        (HeadMismatchError, {"layers": [7]}, "layer"),
        (HeadMismatchError, {"feed_forward": 50}, "50"),
        (ModelNotFoundError, {"heads": 0}, "heads"),
        (
            ModelNotFoundError,
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "rope_scaling",
        ),
    ],
)
def test_a_config_that_does_not_fit(tmp_path, error, changes, word):
    with refused(error, word):
        load(saved(tmp_path / "prose", tiny("llama"), **changes))


def test_damaged_files(tmp_path):
    for name in ("head.safetensors", "head.json"):
        folder = saved(tmp_path / "prose", tiny("llama"))
        (folder / name).write_bytes((folder / name).read_bytes()[:40])
        with refused(ModelNotFoundError, name):
            load(folder)
    tensors = load_file(saved(folder, tiny("llama")) / "head.safetensors")
    del tensors["fc.bias"]
    save_file(tensors, folder / "head.safetensors")
    with refused(HeadMismatchError, "prose"):
        load(folder)


class _Trap:
    """A pickle of this makes a folder when it is opened."""

    def __init__(self, path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_that_would_run_code_does_not(tmp_path):
    write(tmp_path / "eagle", tiny("llama"), EAGLE)
    torch.save(
        {"fc.weight": torch.zeros(1), "trap": _Trap(tmp_path / "sprung")},
        tmp_path / "eagle/pytorch_model.bin",
    )
    with refused(ModelNotFoundError, "pytorch_model.bin", "run code", "safetensors"):
        load(tmp_path / "eagle")
    assert not (tmp_path / "sprung").exists()


def test_a_head_whose_weights_are_no_numbers_is_named_and_its_cache_stays():
    target = Runner(tiny("llama"))
    head = random_head(target.model, name="broken")
    torch.nn.init.constant_(head.fc.weight, float("nan"))
    runner = HeadRunner(head, target)
    with refused(speclab.LogitsError, "broken", "NaN"):
        runner.extend(TEXT[1:3], states_of(target.model)[:2])
    assert (runner.length, runner.cache.length, runner.calls) == (0, 0, 0)
