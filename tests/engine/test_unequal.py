"""Drafts of another size than the target: other ids, a shorter context. The text is the target's own."""

import copy
from functools import cache

import pytest
import torch
from safetensors.torch import save_file
from support.every_strategy import ALONE, DRAFTED
from support.head_folders import weights, write
from support.heads import random_block, random_head
from support.pairs import PROMPT, assert_cache_is_fresh, library_text, noisy
from support.records import ran
from support.tiny import tiny
from support.words import word_tokenizer

import speclab

pytestmark = pytest.mark.model

LONG = [*PROMPT * 3, 11]
NEW = 16
EVERY = ALONE | DRAFTED | {"ddtree": speclab.DDTree(node_budget=9)}


@cache
def target(vocab=64):
    """Of more than 64 ids, it often chooses one of those at the end."""
    model = tiny("llama", seed=3, vocab=vocab, num_hidden_layers=5)
    with torch.no_grad():
        model.lm_head.weight[64:] *= 1.6
    return model


def resized(vocab):
    """A draft that often agrees with the target, of other size."""
    model = copy.deepcopy(target(max(vocab, 64)))
    model.resize_token_embeddings(vocab)
    return noisy(model, 0.02)


def positions(count, vocab=64):
    """A draft with a table of positions, which fails behind its last."""
    return tiny("gpt2", seed=9, vocab=vocab, n_positions=count)


def pair_of(vocab, draft, sized=64, **more):
    """A target of so many ids, a draft, and two heads made for a target of `sized` ids."""
    like = target(sized)
    heads = [random_head(like, 1, own_output=True), random_block(like, 2, markov_rank=4)]
    return speclab.load_pair(target=target(vocab), draft=draft, heads=heads, **more)


PAIRS = {
    "rows that the draft lacks win": lambda: pair_of(96, resized(64)),
    "tokenizer of fewer ids": lambda: pair_of(96, resized(72), tokenizer=word_tokenizer(70)),
    "more ids in the tokenizer": lambda: pair_of(66, resized(64), tokenizer=word_tokenizer(90)),
    "more ids in draft and heads": lambda: pair_of(64, resized(96), sized=72),
    "a draft of 24 positions and fewer ids": lambda: pair_of(96, positions(24, 64)),
    "a prompt longer than the draft's context": lambda: pair_of(64, positions(24)),
}


@pytest.mark.wide
@pytest.mark.parametrize("name", PAIRS)
def test_strategies_write_the_targets_text_and_leaves_fresh_caches(name):
    """Every third strategy; the prompt has the target's last id, which a smaller draft lacks."""
    unequal = PAIRS[name]()
    prompt = [*(LONG if "longer" in name else PROMPT), unequal.vocab_size - 1, 3]
    own = library_text(unequal.target.model, prompt, NEW)
    assert unequal.vocab_size < 90 or max(own) >= 64
    for kind, strategy in [*EVERY.items()][[*PAIRS].index(name) % 3 :: 3]:
        check = kind in ("chain", "prompt lookup")
        session = ran(unequal, strategy, prompt, max_new_tokens=NEW, check=check)
        assert session.token_ids == own, kind
        draft = session.pair.draft
        for runner in (session.pair.target, draft, *session.pair.heads):
            assert_cache_is_fresh(runner, prompt + own, session.pair.target.model)
        for step in session.steps:
            ids = step.tree.token[[source == "draft" for source in step.tree.source]]
            assert (ids < min(draft.known, unequal.vocab_size)).all()
            ended = draft.context == 24 and step.prefix_length >= 23
            assert kind != "chain" or step.note == "draft ended" * ended


@pytest.mark.parametrize(
    ("words", "unknown"),
    [({}, 0), ({"pad": "w6", "unk": "w5"}, 5), ({"unk": "w66", "eos": "w7"}, 7)],
)
def test_the_stand_in_of_an_id_that_a_draft_lacks(words, unknown):
    """An end of text only where no other token is one."""
    tokenizer = word_tokenizer(70)
    for role, word in words.items():
        setattr(tokenizer, f"{role}_token", word)
    pair = speclab.load_pair(target=target(96), draft=resized(64), tokenizer=tokenizer)
    assert pair.describe()["draft_lacks"] == "64 to 95"
    assert pair.describe()["draft_ids"] == "64 of 96"
    assert pair.draft.shown([5, 63, 64, 95]) == [5, 63, unknown, unknown]
    shown = pair.draft.fork().extend([5, 95, 7])
    assert torch.equal(shown, pair.draft.fork().extend([5, unknown, 7]))
    assert shown.shape == (96,)
    assert shown[64:].isneginf().all()


def test_transformers_and_the_clinic_take_a_draft_of_another_size():
    own = target(96)
    ids = torch.tensor([[*PROMPT, 95]])
    draft = resized(64)
    inside = speclab.custom_generate(speclab.DynaTree(), draft)
    text = library_text(own, ids[0].tolist(), NEW, custom_generate=inside)
    assert text == library_text(own, ids[0].tolist(), NEW)
    pair = speclab.load_pair(target=own, draft=draft)
    session = ran(pair, speclab.DynaTree(), ids[0], max_new_tokens=NEW)
    assert speclab.clinic.explain(session.trace, pair) is None
    assert speclab.clinic.report(session).findings == ()


# Heads in folders

LLAMA, QWEN = "SafeAILab, LLaMA 3.3 70B", "RedHatAI, Qwen3 8B"


def halved(folder):
    """With the weights in two files, as large heads are saved."""
    tensors = [*weights(folder).items()]
    for file in {*folder.iterdir()} - {folder / "config.json"}:
        file.unlink()
    for number in (0, 1):
        save_file(dict(tensors[number::2]), folder / f"model-{number}.safetensors")
    return folder


@pytest.mark.parametrize(
    ("name", "vocab", "context", "changes"),
    [
        (LLAMA, 66, 256, {}),
        (QWEN, 66, 16, {"max_position_embeddings": 16}),
        (LLAMA, 64, 256, {"vocab_size": 72}),
    ],
    ids=["added tokens", "16 positions", "padded"],
)
def test_a_head_of_another_size_drafts(tmp_path, name, vocab, context, changes):
    folder = halved(write(tmp_path / "head", target(64), name, **changes))
    pair = speclab.load_pair(target=target(vocab), heads=folder)
    prompt = [*PROMPT[:8], vocab - 1]
    strategy = speclab.LinearSpeculation(head=0)
    session = ran(pair, strategy, prompt, max_new_tokens=NEW, check=True)
    assert session.token_ids == library_text(target(vocab), prompt, NEW)
    assert pair.heads[0].context == context
    for step in session.steps[:-1]:
        assert bool(step.counts.drafted) == (step.prefix_length + 1 < context) != bool(step.note)
