"""Greedy text inside `generate` is the library's own: settings × families × strategies, each at least once."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from support.heads import random_head
from support.pairs import NOISE, PROMPT, draft_of, target_of
from support.tiny import FAMILIES
from support.variants import PATHS
from transformers import LogitsProcessor, StoppingCriteria

import speclab
from speclab.loading.presets import Offer

pytestmark = pytest.mark.model

NEW = 20
PADS = 3
STRATEGIES = [
    *PATHS.values(),
    *(
        kind()
        for kind in speclab.strategies().values()
        if not kind.by_hand and kind is not speclab.DDTree
    ),
]


class Shunned(LogitsProcessor):
    """A user's own: which tokens it dislikes depends on the sum of all ids before, so on a row's own path."""

    def __call__(self, input_ids, scores):
        disliked = (torch.arange(scores.shape[-1]) + input_ids.sum()) % 3 == 0
        return scores - 4.0 * disliked


class Counting(LogitsProcessor):
    """A user's own that counts its calls: one for each token, or its text is another."""

    def __init__(self):
        self.calls = 0

    def __call__(self, input_ids, scores):
        self.calls += 1
        scores[:, self.calls % scores.shape[-1]] += 6.0
        return scores


class Until(StoppingCriteria):
    """Ends a text after an id divisible by eight that is deep enough."""

    def __call__(self, input_ids, scores, **_):
        return torch.tensor(
            [input_ids.shape[1] > len(PROMPT) + 5 and input_ids[0, -1].item() % 8 == 0]
        )


ASKED = {
    "repetition_penalty": lambda: {"repetition_penalty": 1.4},
    "no_repeat_ngram_size": lambda: {"no_repeat_ngram_size": 2},
    "encoder_no_repeat_ngram_size": lambda: {"encoder_no_repeat_ngram_size": 1},
    "lengths, eos": lambda: {
        "min_new_tokens": 6,
        "eos_token_id": [3, 7, 8, 19, 33, 41, 60],
        "suppress_tokens": [5],
    },
    "sequence_bias, bad words": lambda: {
        "sequence_bias": [[[7, 1], -9.0], [[40], 4.0]],
        "bad_words_ids": [[2], [9]],
    },
    "prefix_allowed_tokens_fn": lambda: {
        "prefix_allowed_tokens_fn": lambda batch, ids: [
            t for t in range(64) if (t + batch + len(ids)) % 3
        ]
    },
    "guidance_scale": lambda: {"guidance_scale": 1.5},
    "own processor": lambda: {"logits_processor": [Shunned()]},
    "own processor that counts": lambda: {"logits_processor": [Counting()]},
    "own stopping criterion": lambda: {"stopping_criteria": [Until()]},
    "left padding": lambda: {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
}
"""What a call asks for; made for each call, because some of it counts."""
ROWS = 2
assert ROWS * len(ASKED) >= max(len(STRATEGIES), len(FAMILIES))


def decode(family, asked, **more):
    pads = PADS if asked == "left padding" else 0
    ids = torch.tensor([[0] * pads + PROMPT])
    mask = torch.tensor([[0] * pads + [1] * len(PROMPT)])
    chosen = ASKED[asked]() if asked else {}
    model = target_of(family)
    return model.generate(
        ids, attention_mask=mask, max_new_tokens=NEW, pad_token_id=0, **chosen, **more
    )[0].tolist()


@cache
def inside(family, number):
    model = target_of(family)
    strategy = STRATEGIES[number]
    heads = [random_head(model, seed, name) for seed, name in ((1, "prose"), (2, "code"))]
    return speclab.custom_generate(
        strategy,
        heads if strategy.missing(Offer("", draft=True, heads=0)) else draft_of(family, NOISE),
    )


@pytest.mark.parametrize("place", range(len(ASKED)), ids=ASKED)
def test_greedy_text_is_the_librarys_own(place):
    asked = list(ASKED)[place]
    changes = False
    for row in range(ROWS * place, ROWS * (place + 1)):
        family = FAMILIES[row % len(FAMILIES)]
        own = decode(family, asked)
        assert decode(family, asked, custom_generate=inside(family, row % len(STRATEGIES))) == own
        changes |= own[-NEW:] != decode(family, "")[-NEW:]
    assert changes, "a setting that changes no text would test nothing"
