"""Strategies on random models of many families: the target's own text, and caches as plain decoding leaves them."""

import itertools
import math
from functools import partial

import pytest
import torch
from reference.decoding import argmax, next_logits
from support.pairs import (
    BLOCKS,
    NOISE,
    PROMPT,
    block_pair,
    draft_of,
    headed_pair,
    library_text,
    models_pair,
    pair_of,
    run_and_check_caches,
    target_of,
)
from support.records import paths_of, ran
from support.refusals import refused
from support.tiny import BORDER, tiny
from support.variants import DRAWN, PATHS, VARIANTS
from transformers import RepetitionPenaltyLogitsProcessor

import speclab

pytestmark = pytest.mark.model

NEW = 12
FAMILIES = ("gpt_neox", "llama", "qwen3", "gpt2", "opt", "mistral", "gemma3_text")
WINDOWED = ("mistral", "gemma3_text")
every_path = pytest.mark.parametrize("strategy", PATHS.values(), ids=PATHS)


# The text


def _every_strategy():
    """The variants, all that are registered with their presets, and DynaTree's ways to draft a root and to commit."""
    yield from VARIANTS.items()
    for name, kind in speclab.strategies().items():
        yield name, kind()
        yield from ((f"{name}: {preset}", strategy) for preset, strategy in kind.presets().items())
    for root, commit in itertools.product(("verified", "drafted"), ("gather", "rebuild")):
        yield (
            f"{root}, {commit}",
            speclab.DynaTree(root=root, commit=commit, history="iteration", base_depth=3),
        )


OF_A_HEAD = [
    *(VARIANTS[name] for name in (*PATHS, "best first") if hasattr(VARIANTS[name], "head")),
    speclab.SequoiaTree(source="draft", node_budget=10, depth=6),
    DRAWN["independent dynatree"],
]
DUAL = speclab.DualDraft(node_budget=12, depth=3, children=4)
DDTREE = speclab.DDTree(node_budget=12)
CASES = [
    *(
        (each, pair_of, FAMILIES[place % len(FAMILIES)])
        for place, (_, each) in enumerate(_every_strategy())
    ),
    *((each, pair_of, family) for each, family in itertools.product(PATHS.values(), WINDOWED)),
    *(
        (each, headed_pair, ("llama", "gpt_neox")[place % 2])
        for place, each in enumerate(OF_A_HEAD)
    ),
    (DUAL, headed_pair, "gpt_neox"),
    (DUAL.changed(mode="merge"), headed_pair, "gemma3_text"),
    (DUAL, models_pair, "gemma3_text"),
    *((DDTREE, partial(block_pair, **shape), "llama") for shape in BLOCKS.values()),
    *((each, partial(block_pair, **BLOCKS["bias"]), "llama") for each in OF_A_HEAD),
]
"""Every strategy on some family, every path through the engine on families whose rows do not see everything, and
every way to draft with heads and with two drafts."""


@pytest.mark.wide
@pytest.mark.parametrize(("strategy", "make", "family"), CASES)
def test_the_text_is_the_targets_own_and_the_caches_are_fresh(strategy, make, family):
    """In a fork before the last iteration, too."""
    pair = make(family)
    if strategy.missing(pair.offer):
        pair = block_pair(family, 64)
    prompt = [token % pair.vocab_size for token in PROMPT]
    own = library_text(pair.target.model, prompt, NEW)
    session = run_and_check_caches(speclab.Session(pair, strategy, prompt, max_new_tokens=NEW))
    twin = run_and_check_caches(session.fork(len(session.steps) - 1))
    assert session.token_ids == twin.token_ids == own
    assert paths_of(session.steps[-1].tree) == paths_of(twin.steps[-1].tree)


@pytest.mark.wide
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@every_path
def test_tensors_name_their_device_whatever_the_default_is(strategy, temperature):
    """As under torch.set_default_device("cuda"): a tensor without a device would land elsewhere."""
    pair = pair_of("llama", NOISE)
    settings = {"max_new_tokens": NEW, "temperature": temperature}
    want = ran(pair, strategy, PROMPT, **settings)
    torch.set_default_device("meta")
    try:
        session = ran(pair, strategy, PROMPT, **settings)
    finally:
        torch.set_default_device("cpu")
    assert session.token_ids == want.token_ids


@every_path
def test_generate_is_the_session_without_records_and_a_check_passes(strategy):
    pair = pair_of("qwen3", NOISE)
    for settings in ({}, {"temperature": 1.0, "top_p": 0.9}):
        session = ran(pair, strategy, PROMPT, max_new_tokens=NEW, **settings)
        for check in (False, True):
            result = speclab.generate(
                pair, strategy, PROMPT, max_new_tokens=NEW, check=check, **settings
            )
            assert (result.token_ids, result.text) == (session.token_ids, session.text)
            for name in ("iterations", "target_calls", "draft_calls", "acceptance_rate"):
                assert getattr(result.metrics, name) == getattr(session.metrics, name)


# Every node against a fresh pass over its own path


@pytest.mark.parametrize(
    ("family", "root", "penalty"),
    [
        ("gpt_neox", "verified", 1.0),
        ("gpt2", "drafted", 1.7),
        ("gemma3_text", "drafted", 1.0),
        ("llama", "verified", 1.7),
    ],
)
def test_each_node_is_what_a_fresh_pass_over_its_path_gives(family, root, penalty, monkeypatch):
    """Draft log-prob, target probability and target choice: nothing leaks between siblings, positions are right.

    What the generation_config asks for is done to each row by its own path.
    """
    target = target_of(family)
    monkeypatch.setattr(target.generation_config, "repetition_penalty", penalty)
    penalized = RepetitionPenaltyLogitsProcessor(penalty)

    def probs_of(model, ids):
        logits = torch.tensor([next_logits(model, ids)])
        processed = penalized(torch.tensor([ids]), logits) if model is target else logits
        return processed[0].softmax(-1).tolist()

    draft = draft_of(family, NOISE)
    strategy = VARIANTS["wide dynatree"].changed(root=root)
    session = speclab.Session(pair_of(family, NOISE), strategy, PROMPT, max_new_tokens=40)
    for _ in range(2):
        text = session.prompt_ids + session.token_ids
        step = session.step()
        assert len(step.tree) == 24
        assert family in WINDOWED or set(step.prefix_seen) == {step.prefix_length}
        for node in step.nodes:
            path = step.tree.token[list(step.tree.path(node.index))].tolist()[root == "verified" :]
            probs = probs_of(target, text + path)
            top = dict(node.target_top)
            assert node.target_choice == argmax(probs) == next(iter(top))
            assert top == pytest.approx({token: probs[token] for token in top}, abs=1e-4)
            if path:
                drafted, due = (
                    probs_of(model, text + path[:-1])[path[-1]] for model in (draft, target)
                )
                assert math.exp(step.tree.log_prob[node.index]) == pytest.approx(drafted, abs=1e-4)
                assert node.target_prob == pytest.approx(due, abs=1e-4)


# The shortest and the longest text


@every_path
def test_longrope_decodes_up_to_where_it_would_change_all_angles(strategy):
    """Phi-3-128k turns all positions by other angles once a text is long."""
    pair = speclab.load_pair(target=tiny("phi3"), draft=tiny("phi3", seed=3))
    # so n-grams match
    prompt = torch.randint(0, 4, (20,), generator=torch.Generator().manual_seed(20)).tolist()
    session = ran(pair, strategy, prompt, max_new_tokens=BORDER - 20, check=True)
    assert session.token_ids == library_text(pair.target.model, prompt, BORDER - 20)
    with refused(speclab.ContextExceededError, "32 tokens: set max_new_tokens to 12 or less"):
        session.fork(max_new_tokens=13)
