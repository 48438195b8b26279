"""The text inside `generate` is the library's own: families × strategies × processors, a thin part of them as a test.

`python tests/engine/test_custom_generate_matrix.py` decodes with all of them and prints how many texts are equal.
"""

from __future__ import annotations

import sys
from functools import cache
from itertools import product
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from heads import random_head
from pairs import NOISE, PROMPT, draft_of, target_of
from tiny import FAMILIES
from transformers import LogitsProcessor, StoppingCriteria
from variants import VARIANTS

import speclab

pytestmark = pytest.mark.model

NEW, PADS = 20, 3
STRATEGIES = VARIANTS | {f"{name}()": kind() for name, kind in speclab.strategies().items() if not kind.by_hand}


class Shunned(LogitsProcessor):
    """The user's own: which tokens it dislikes follows from the sum of all ids before, so from a row's own path."""

    def __call__(self, input_ids, scores):
        disliked = (torch.arange(scores.shape[-1]) + input_ids.sum()) % 3 == 0
        return scores - 4.0 * disliked


class Counting(LogitsProcessor):
    """The user's own, which counts its calls: one for each token, or its text is another."""

    def __init__(self):
        self.calls = 0

    def __call__(self, input_ids, scores):
        self.calls += 1
        scores[:, self.calls % scores.shape[-1]] += 6.0
        return scores


class Until(StoppingCriteria):
    """Ends a text after an id divisible by eight that stands deep enough."""

    def __call__(self, input_ids, scores, **_):
        return torch.tensor([input_ids.shape[1] > len(PROMPT) + 5 and input_ids[0, -1].item() % 8 == 0])


ASKED = {
    "nothing": dict,
    "repetition_penalty": lambda: {"repetition_penalty": 1.4},
    "no_repeat_ngram_size": lambda: {"no_repeat_ngram_size": 2},
    "encoder_no_repeat_ngram_size": lambda: {"encoder_no_repeat_ngram_size": 1},
    "lengths, eos": lambda: {"min_new_tokens": 6, "eos_token_id": [3, 7, 8, 19, 33, 41, 60], "suppress_tokens": [5]},
    "sequence_bias, bad words": lambda: {"sequence_bias": [[[7, 1], -9.0], [[40], 4.0]], "bad_words_ids": [[2], [9]]},
    "prefix_allowed_tokens_fn": lambda: {
        "prefix_allowed_tokens_fn": lambda batch, ids: [t for t in range(64) if (t + batch + len(ids)) % 3]
    },
    "guidance_scale": lambda: {"guidance_scale": 1.5},
    "own processor": lambda: {"logits_processor": [Shunned()]},
    "own processor that counts": lambda: {"logits_processor": [Counting()]},
    "own stopping criterion": lambda: {"stopping_criteria": [Until()]},
    "left padding": lambda: {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
}
"""What a call asks for; made anew for each, because some of it counts."""


def decode(family, asked, **more):
    padding = PADS if asked == "left padding" else 0
    ids = torch.tensor([[0] * padding + PROMPT])
    mask = torch.tensor([[0] * padding + [1] * len(PROMPT)])
    text = target_of(family).generate(
        ids, attention_mask=mask, max_new_tokens=NEW, pad_token_id=0, **ASKED[asked](), **more
    )
    return text[0].tolist()


@cache
def library(family, asked):
    return decode(family, asked)


@cache
def inside(family, strategy):
    """One callable for all calls, as a user would keep it."""
    model, chosen = target_of(family), STRATEGIES[strategy]
    heads = [random_head(model, seed, name) for seed, name in ((1, "prose"), (2, "code"))]
    return speclab.custom_generate(chosen, heads if chosen.heads_needed else draft_of(family, NOISE))


def equal(family, strategy, asked):
    return decode(family, asked, custom_generate=inside(family, strategy)) == library(family, asked)


THIN = [
    (family, strategy, asked)
    for place, (family, strategy, asked) in enumerate(product(FAMILIES, STRATEGIES, ASKED))
    if place % 47 == 0
]
"""A step that has no factor in common with the lengths: every family, strategy and setting is among them."""


def test_every_family_strategy_and_setting_is_in_the_thin_part():
    assert {row[0] for row in THIN} == set(FAMILIES)
    assert {row[1] for row in THIN} == set(STRATEGIES)
    assert {row[2] for row in THIN} == set(ASKED)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_the_librarys_own(family):
    wrong = [row for row in THIN if row[0] == family and not equal(*row)]
    assert wrong == []


@pytest.mark.parametrize("asked", [name for name in ASKED if name not in {"nothing", "left padding"}])
def test_what_is_asked_changes_the_text(asked):
    assert any(library(family, asked) != library(family, "nothing") for family in FAMILIES)


def main() -> None:
    found = {row: equal(*row) for row in product(FAMILIES, STRATEGIES, ASKED)}
    for name, place in (("family", 0), ("strategy", 1), ("asked", 2)):
        for value in dict.fromkeys(row[place] for row in found):
            of = [same for row, same in found.items() if row[place] == value]
            sys.stdout.write(f"{name:9} {value:30} {sum(of)} of {len(of)} equal\n")
    wrong = [row for row, same in found.items() if not same]
    sys.stdout.write(f"{len(found) - len(wrong)} of {len(found)} equal; not: {wrong}\n")


if __name__ == "__main__":
    main()
