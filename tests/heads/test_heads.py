"""Draft heads on disk: our own format, draft vocabularies, files that do not fit.

Others' formats: `head_formats`.
"""

from __future__ import annotations

import pytest
import torch
from support.head_folders import SOME
from support.heads import random_head
from support.pairs import target_of
from support.tiny import tiny

import speclab
from speclab.heads.eagle import EagleRunner
from speclab.heads.files import read_head
from speclab.models.lean import Linear
from speclab.models.runner import Runner
from training.head_export import save_head

EAGLE = "SafeAILab, EAGLE of LLaMA 2"
TEXT = [5, 9, 2, 40, 33, 7, 7, 1]


def states_of(target, text=TEXT) -> torch.Tensor:
    with torch.no_grad():
        return target(torch.tensor([text]), output_hidden_states=True).hidden_states[-1][0]


def answers(head, target) -> list:
    """Logits and feature after every place of TEXT but the first."""
    runner = EagleRunner(head, Runner(target))
    states = states_of(target)
    passes = [runner.extend([token], states[[place]]) for place, token in enumerate(TEXT[1:])]
    return [(answer, features[-1]) for answer, features in passes]


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


def test_texts_share_the_weights_that_a_head_packs(monkeypatch):
    made = []
    pack = Linear.__init__
    monkeypatch.setattr(Linear, "__init__", lambda self, *parts: made.append(pack(self, *parts)))
    target = target_of("llama")
    pair = speclab.load_pair(target=target, heads=random_head(target, ids=SOME, layers=(1, 2)))
    counts = [len(made)]
    for _ in range(2):
        speclab.generate(pair, speclab.DraftHead(node_budget=6), [5, 9, 2], max_new_tokens=8)
        counts.append(len(made))
    assert counts[0] < counts[1] == counts[2]
