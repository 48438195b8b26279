"""Ctrl-C or a full memory at any moment of an iteration: it has not happened, and the next step is the
one that would have come, in the session and in a fork of it.
"""

from functools import cache

import pytest
import torch
from support import every_strategy
from support.every_strategy import ALONE, DRAFTED
from support.heads import random_block, random_head
from support.interrupts import at_call, at_line, stopped_everywhere
from support.pairs import assert_cache_is_fresh, noisy
from support.records import assert_alike
from support.tiny import tiny

import speclab
from speclab.engine import decode
from speclab.errors import OutOfMemoryError
from speclab.models.paths import PathRunner

pytestmark = pytest.mark.model

VOCAB = 16
PROMPT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4]
EVERY = ALONE | DRAFTED


@cache
def pair_of(family):
    """With a draft of the family, and with two heads for one of them."""
    target = tiny(family, vocab=VOCAB)
    heads = [random_head(target), random_block(target, markov_rank=4)] if family == "llama" else []
    return speclab.load_pair(target=target, draft=noisy(target, 0.02), heads=heads)


def text_of(pair, strategy, new=8):
    return lambda: speclab.Session(pair, strategy, PROMPT, max_new_tokens=new, stop_at_eos=False)


TREE = speclab.DynaTree(node_budget=8, stop_probability=0.0)
TEXTS = {
    "a window": ("mistral", TREE),
    "states of the target": (
        "llama",
        speclab.DualDraft(node_budget=6, depth=2, first=0, second=None),
    ),
    "a block": ("llama", speclab.DDTree(node_budget=8)),
    "paths": ("mamba2", speclab.PromptLookup()),
    "paths of a draft": ("mamba2", TREE),
    "paths of a hybrid": ("qwen3_next", speclab.PromptLookup()),
    "paths, run again": ("gpt_neo", speclab.DynaTree.paper().changed(base_depth=2, node_budget=6)),
    "token by token": ("mamba", speclab.PromptLookup(draft_tokens=3)),
}
"""Families and strategies that together run every kind of pass."""


@pytest.mark.wide
@pytest.mark.parametrize("name", TEXTS)
def test_any_call_of_a_module(name):
    """Whichever model runs out of memory is named."""
    family, strategy = TEXTS[name]
    pair = pair_of(family)
    kinds = (KeyboardInterrupt, torch.OutOfMemoryError)
    raised, run = stopped_everywhere(text_of(pair, strategy), at_call, 16, kinds)
    assert len(raised) > 9
    names = [source.name for source in decode.runners(pair)]
    for error in raised[1::2]:
        assert isinstance(error, OutOfMemoryError)
        assert str(error).partition(" ran out of memory")[0] in names
    if not isinstance(run.pair.target, PathRunner):
        assert_cache_is_fresh(run.pair.target, run.prompt_ids + run.token_ids)


@pytest.mark.wide
@pytest.mark.parametrize(
    "name", ["a window", "states of the target", "a block", "paths of a draft"]
)
def test_any_line_of_the_engine_and_the_models(name):
    family, strategy = TEXTS[name]
    stop = at_line("engine", "models", "heads")
    assert len(stopped_everywhere(text_of(pair_of(family), strategy), stop, 16)[0]) > 15


@pytest.mark.wide
@pytest.mark.parametrize("name", EVERY)
def test_any_line_of_a_drafter(name):
    """And of what reads the texts of tokens, for records."""
    begin = text_of(every_strategy.pair_of(), EVERY[name])
    stop = at_line("drafters", "loading/tokens")
    assert len(stopped_everywhere(begin, stop, 8)[0]) > 7


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.wide
@pytest.mark.parametrize("name", ["dynatree", "drafted root", "goose", "lookahead"])
@pytest.mark.parametrize("again", [False, True])
def test_a_stopped_iteration_is_not_in_the_trace_even_if_undoing_it_is_stopped(
    monkeypatch, name, again
):
    begin = text_of(pair_of("llama"), EVERY[name])
    whole = begin()
    whole.run()
    run = begin()
    run.step()
    before = run.trace
    with monkeypatch.context() as patch:
        patch.setattr("speclab.engine.session.record", interrupted)
        if again:
            patch.setattr(decode.Decoding, "restore", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.step()
    assert run.trace == before
    run.run()
    for mine, its in zip(run.steps, whole.steps, strict=True):
        assert_alike(mine, its)
