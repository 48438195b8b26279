"""Inside `generate`: what it hands over is followed as the library does, or refused by name; the
model is unchanged.

test_custom_generate_matrix.py compares greedy texts.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from reference.decoding import next_logits
from support.distributions import assert_drawn_from, text_distribution
from support.heads import random_head
from support.pairs import NOISE, PROMPT, draft_of, noisy, target_of
from support.refusals import refused
from support.tiny import tiny
from support.variants import DRAWN, VARIANTS
from transformers import (
    DynamicCache,
    LogitsProcessor,
    MaxLengthCriteria,
    StoppingCriteria,
    StopStringCriteria,
    pipeline,
)

import speclab
from speclab import pair as models_pair
from speclab.errors import (
    ContextExceededError,
    NoDraftError,
    PromptError,
    SettingsError,
    UnsupportedModelError,
)
from speclab.models import lean
from speclab.models.runner import Runner

pytestmark = pytest.mark.model

IDS = torch.tensor([PROMPT])
TREE = VARIANTS["wide dynatree"]


def model():
    return target_of("llama")


@pytest.fixture(scope="module")
def inside():
    return speclab.custom_generate(TREE, draft_of("llama", NOISE))


def both(inside, new=20, make=dict, **settings):
    """What the library returns by itself, and with the callable; `make` gives further settings for each call."""
    shared = {"max_new_tokens": new, "pad_token_id": 0, **settings}
    return [
        model().generate(IDS, **shared, **make(), **more)
        for more in ({}, {"custom_generate": inside})
    ]


def test_the_record_holds_scores_and_logits_of_every_token_if_asked(inside):
    scored = {"output_scores": True, "output_logits": True, "repetition_penalty": 1.5}
    own, ours = both(inside, return_dict_in_generate=True, **scored)
    assert torch.equal(own.sequences, ours.sequences)
    assert len(ours.scores) == len(ours.logits) == 20
    for name in ("scores", "logits"):
        torch.testing.assert_close(getattr(ours, name), getattr(own, name), rtol=1e-4, atol=1e-4)
    assert not torch.equal(ours.scores[3], ours.logits[3])
    _, bare = both(inside, return_dict_in_generate=True)
    assert bare.scores is bare.logits is bare.past_key_values is None


class Watching(StoppingCriteria):
    """Ends the text at a length; notes what it was shown."""

    def __init__(self, length):
        self.length = length
        self.seen = []

    def __call__(self, input_ids, scores, **_):
        self.seen.append((input_ids.tolist(), None if scores is None else len(scores)))
        return torch.tensor([input_ids.shape[1] >= self.length])


def test_a_criterion_is_asked_after_every_token_and_cuts_inside_an_accepted_path(inside):
    for length in range(len(PROMPT) + 1, len(PROMPT) + 7):
        criteria = [Watching(length), Watching(length)]
        each = iter(criteria)
        record = length % 2 == 0
        own, ours = both(
            inside, make=lambda each=each: {"stopping_criteria": [next(each)]}, return_dict_in_generate=record,
            output_scores=record,
        )  # fmt: skip
        assert criteria[0].seen == criteria[1].seen
        assert torch.equal(own.sequences, ours.sequences) if record else torch.equal(own, ours)
    own, ours = both(
        inside, new=4, make=lambda: {"stopping_criteria": [MaxLengthCriteria(len(PROMPT) + 9)]}
    )
    assert torch.equal(own, ours)
    assert ours.shape[1] == len(PROMPT) + 9, "a length of the user's own replaces max_new_tokens"


class Listening:
    """A streamer that notes all calls."""

    def __init__(self):
        self.heard = []

    def put(self, value):
        self.heard.append((value.shape, value.tolist()))

    def end(self):
        self.heard.append("end")


def test_a_streamer_gets_prompt_tokens_and_end_as_from_the_library():
    """It goes to custom_generate: transformers does not hand it on."""
    own = Listening()
    ours = Listening()
    model().generate(IDS, max_new_tokens=9, pad_token_id=0, streamer=own)
    inside = speclab.custom_generate(TREE, draft_of("llama", NOISE), streamer=ours)
    model().generate(IDS, max_new_tokens=9, pad_token_id=0, custom_generate=inside)
    assert own.heard == ours.heard
    assert len(ours.heard) == 11


LENGTH = 3
SHORT = [1, 3, 0]
SMALL = {"vocab": 5, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32}


class Repeated(LogitsProcessor):
    """Likes the newest token, so the distribution after a node depends on its own path."""

    def __call__(self, input_ids, scores):
        return scores.scatter_add(1, input_ids[:, -1:], torch.full((len(scores), 1), 1.5))


def test_sampled_texts_have_the_librarys_distribution():
    target = tiny("gpt2", seed=1, **SMALL)
    inside = speclab.custom_generate(
        DRAWN["tree without replacement"], tiny("gpt2", seed=2, **SMALL)
    )
    sampling = {"temperature": 1.3, "top_k": 4, "top_p": 0.9}
    texts = Counter()
    torch.manual_seed(7)
    for _ in range(150):
        text = target.generate(
            torch.tensor([SHORT]), max_new_tokens=LENGTH, do_sample=True, custom_generate=inside,
            logits_processor=[Repeated()], **sampling,
        )  # fmt: skip
        texts[tuple(text[0, len(SHORT) :].tolist())] += 1

    def logits(after):
        ids = [*SHORT, *after]
        return [
            score + 1.5 * (token == ids[-1]) for token, score in enumerate(next_logits(target, ids))
        ]

    assert_drawn_from(texts, text_distribution(logits, LENGTH, **sampling))


def test_a_seed_repeats_a_sampled_text_from_the_first_call_on_and_greedy_draws_no_number():
    inside = speclab.custom_generate(TREE, draft_of("llama", NOISE))
    lean._can_pack.cache_clear()  # as in a new process, where the first load tries a random layer

    def sampled(seed):
        torch.manual_seed(seed)
        return (
            model()
            .generate(
                IDS, max_new_tokens=20, do_sample=True, custom_generate=inside, pad_token_id=0
            )
            .tolist()
        )

    assert sampled(1) == sampled(1) != sampled(2)
    before = torch.get_rng_state()
    model().generate(IDS, max_new_tokens=4, custom_generate=inside, pad_token_id=0)
    assert torch.equal(before, torch.get_rng_state())


class Broken(LogitsProcessor):
    def __call__(self, input_ids, scores):
        raise RuntimeError("broken")


@pytest.mark.parametrize("processors", [[], [Broken()]], ids=["a text", "an error"])
@pytest.mark.parametrize("attention", ["sdpa", "flex_attention"])
def test_the_model_is_left_as_it_was(attention, processors):
    own = tiny("llama", seed=3)
    own.set_attn_implementation(attention)
    own.train()
    own.model.layers[1].eval()
    handle = own.model.norm.register_forward_hook(lambda *_: None)
    draft = noisy(own, NOISE).train()

    def state():
        modes = [part.training for part in (*own.modules(), draft)]
        weights = [(weight.data_ptr(), weight._version) for weight in own.parameters()]
        return (
            vars(own).copy(),
            own.config.to_dict(),
            own.config._attn_implementation,
            modes,
            weights,
        )

    before = state()
    with pytest.raises(RuntimeError, match="broken") if processors else nullcontext():
        own.generate(
            IDS,
            max_new_tokens=6,
            custom_generate=speclab.custom_generate(TREE, draft),
            logits_processor=processors,
        )
    assert state() == before
    assert list(own.model.norm._forward_hooks) == [handle.id]


class _Counting(LogitsProcessor):
    calls = 0

    def __call__(self, input_ids, scores):
        self.calls += 1
        return scores


@pytest.mark.parametrize(
    "strategy", [speclab.TokenRecycling(node_budget=13), speclab.Goose(node_budget=16), TREE]
)
def test_processors_are_called_once_per_token(strategy):
    own = tiny("llama", seed=3)
    counting = _Counting()
    inside = speclab.custom_generate(strategy, noisy(own, NOISE))
    own.generate(
        IDS,
        max_new_tokens=20,
        do_sample=False,
        custom_generate=inside,
        logits_processor=[counting],
    )
    assert counting.calls == 20


def test_an_edited_model_is_seen():
    own = tiny("mistral", seed=3)
    inside = speclab.custom_generate(speclab.PromptLookup())
    runs = {"max_new_tokens": 12, "pad_token_id": 0}

    def decoded():
        want = own.generate(IDS, **runs)
        assert torch.equal(own.generate(IDS, custom_generate=inside, **runs), want)
        return tuple(want[0].tolist())

    texts = [decoded()]
    own.lm_head.weight.data.neg_()
    texts.append(decoded())
    own.generation_config.repetition_penalty = 1.3
    texts.append(decoded())
    own.config.sliding_window = 5
    texts.append(decoded())
    assert len(set(texts)) == 4


def test_a_model_is_prepared_once_and_an_iteration_is_one_pass(monkeypatch):
    own = tiny("llama", seed=3)
    probes = []
    passes = []
    probe = models_pair.check_trees
    logits = Runner.logits
    monkeypatch.setattr(
        models_pair, "check_trees", lambda runner: probes.append(runner.name) or probe(runner)
    )
    inside = speclab.custom_generate(TREE, noisy(own, NOISE))
    own.generate(IDS, max_new_tokens=20, custom_generate=inside)
    monkeypatch.setattr(
        Runner, "logits", lambda self, *a, **k: passes.append(self.model) or logits(self, *a, **k)
    )
    own.generate(IDS, max_new_tokens=20, custom_generate=inside)
    assert len(probes) == 2, "the target and the draft"
    assert 2 < len([each for each in passes if each.model is own.model]) < 20


def test_drafts_of_every_kind(tmp_path):
    own = model()
    draft = draft_of("llama", NOISE)
    draft.save_pretrained(tmp_path / "draft")
    heads = [random_head(own, seed, name) for seed, name in ((1, "prose"), (2, "code"))]
    pair = speclab.load_pair(target=own, draft=draft, heads=heads)
    expected = own.generate(IDS, max_new_tokens=12, pad_token_id=0)
    for strategy, given in (
        (TREE, tmp_path / "draft"),
        (TREE, str(tmp_path / "draft")),
        (TREE, pair.draft),
        (TREE, random_head(own, 3, "fused", layers=(0, 1, 2))),
        (VARIANTS["best first"], pair.heads[1]),
        (speclab.DualDraft(), [draft, heads[0]]),
        (speclab.PromptLookup(), draft),
    ):
        inside = speclab.custom_generate(strategy, given)
        assert torch.equal(
            expected, own.generate(IDS, max_new_tokens=12, pad_token_id=0, custom_generate=inside)
        )


def test_with_a_tokenizer_stop_strings_cut_and_a_pipeline_passes_it_on():
    pair = speclab.load_pair()
    own = pair.target.model
    tokenizer = pair.tokenizer
    inside = speclab.custom_generate(TREE, draft=pair.draft)
    inputs = tokenizer("Once upon a time there was a", return_tensors="pt")
    for strings in (["girl", " a l"], ["ed Ma"]):
        asked = {
            "max_new_tokens": 30,
            "stopping_criteria": [StopStringCriteria(tokenizer, strings)],
        }
        ours = own.generate(**inputs, **asked, custom_generate=inside)
        assert torch.equal(own.generate(**inputs, **asked), ours)
        assert ours.shape[1] < inputs["input_ids"].shape[1] + 30
    stopped = own.generate(**inputs, max_new_tokens=30, max_time=1e-9, custom_generate=inside)
    assert stopped.shape[1] == inputs["input_ids"].shape[1] + 1
    pipe = pipeline("text-generation", model=own, tokenizer=tokenizer)
    prompt = "Once upon a time there was"
    asked = {"max_new_tokens": 9, "do_sample": False}
    assert pipe(prompt, custom_generate=inside, **asked) == pipe(prompt, **asked)


class Nothing(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return torch.full_like(scores, -torch.inf)


HIDDEN = {"return_dict_in_generate": True}
ASKED = [
    ({"num_beams": 3, "do_sample": True}, "num_beams=3"),
    ({"inputs": IDS.repeat(2, 1)}, "[2, 13]"),
    ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens"),
    ({"output_attentions": True, **HIDDEN}, "output_attentions"),
    ({"cache_implementation": "static"}, "cache_implementation='static'"),
    ({"attention_mask": torch.tensor([[1] * 5 + [0] + [1] * 7])}, "attention_mask"),
    ({"attention_mask": torch.tensor([[1] * 12 + [0]])}, "pad on the left"),
    ({"position_ids": torch.arange(13)[None] + 2}, "position_ids"),
    ({"inputs": None, "inputs_embeds": torch.zeros(1, 3, 32)}, "inputs_embeds"),
    ({"do_sample": True, "logits_processor": [Nothing()]}, "no token"),
    ({"assistant_model": tiny("llama")}, "assistant_model"),  # the library would ignore it
]


def filled():
    cache = DynamicCache()
    model()(IDS[:, :4], past_key_values=cache)
    return cache


@pytest.mark.parametrize(("asked", "word"), ASKED, ids=[word for _, word in ASKED])
def test_what_cannot_be_followed_is_refused_by_name(inside, asked, word):
    with refused(SettingsError, word):
        model().generate(
            **{"inputs": IDS, "max_new_tokens": 4, "pad_token_id": 0, "custom_generate": inside}
            | asked
        )


def test_a_cache_with_a_text_an_id_of_no_model_and_a_text_beyond_the_context_are_refused(inside):
    asked = {"pad_token_id": 0, "custom_generate": inside}
    with refused(SettingsError, "past_key_values"):
        model().generate(IDS, max_new_tokens=4, past_key_values=filled(), **asked)
    with refused(ContextExceededError, "context", "243"):
        model().generate(IDS, max_new_tokens=1000, **asked)
    for wrong in (1.0, 64, -1):
        ids = torch.tensor([[wrong, 3]])
        with refused(PromptError, f"{wrong} is"):
            model().generate(ids, attention_mask=torch.ones(1, 2), max_new_tokens=4, **asked)


def test_a_model_that_reads_more_than_the_text_is_refused_until_it_does_not(inside):
    """As peft's prompt tuning, which lends a model another method for the time of a call."""
    own = tiny("llama", seed=3)
    prepare = own.prepare_inputs_for_generation
    own.prepare_inputs_for_generation = partial(prepare)
    with refused(UnsupportedModelError, "prepare_inputs_for_generation", "peft", "LoRA"):
        own.generate(IDS, max_new_tokens=4, custom_generate=inside)
    own.prepare_inputs_for_generation = prepare
    assert own.generate(IDS, max_new_tokens=4, custom_generate=inside).shape == (1, len(PROMPT) + 4)


@pytest.mark.parametrize(
    ("strategy", "draft", "error"),
    [
        (TREE, list, NoDraftError),
        ("DynaTree", lambda: None, SettingsError),
        (speclab.DualDraft(), lambda: random_head(model()), NoDraftError),
    ],
    ids=["no draft", "no strategy", "one head of two"],
)
def test_a_draft_or_a_strategy_that_does_not_fit(strategy, draft, error):
    with refused(error):
        model().generate(
            IDS, max_new_tokens=4, custom_generate=speclab.custom_generate(strategy, draft())
        )
