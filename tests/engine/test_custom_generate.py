"""Inside `generate`: what it hands over is followed as the library does, or refused by name; the model is unchanged."""

import shutil
import tomllib
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from reference.decoding import next_logits
from support.distributions import assert_drawn_from, text_distribution
from support.heads import random_head
from support.pairs import NOISE, PROMPT, draft_of, noisy, target_of
from support.refusals import refused
from support.tiny import FAMILIES, tiny
from support.variants import DRAWN, PATHS, VARIANTS
from transformers import (
    DynamicCache,
    LogitsProcessor,
    MaxLengthCriteria,
    StoppingCriteria,
    dynamic_module_utils,
)

import speclab
from speclab import errors
from speclab import pair as models_pair

pytestmark = pytest.mark.model

IDS = torch.tensor([PROMPT])
TREE = VARIANTS["wide dynatree"]


def model(family="llama"):
    return target_of(family)


@pytest.fixture(scope="module")
def inside():
    return speclab.custom_generate(TREE, draft_of("llama", NOISE))


def generated(own, new=20, ids=IDS, **asked):
    return own.generate(ids, **{"max_new_tokens": new, "pad_token_id": 0} | asked)


class Own(LogitsProcessor):
    """Dislikes tokens by all ids before, so by a row's own path, and by its calls: one for each token."""

    def __init__(self):
        self.calls = 0

    def __call__(self, input_ids, scores):
        self.calls += 1
        disliked = (torch.arange(scores.shape[-1]) + input_ids.sum() + self.calls) % 3 == 0
        return scores - 4.0 * disliked


ASKED = [
    lambda: {"repetition_penalty": 1.4, "min_new_tokens": 6, "eos_token_id": [3, 7, 8, 19, 33, 41]},
    lambda: {"guidance_scale": 1.5},
    lambda: {"logits_processor": [Own()]},
    lambda: {
        "ids": torch.tensor([[0] * 3 + PROMPT]), "no_repeat_ngram_size": 2,
        "attention_mask": torch.tensor([[0] * 3 + [1] * len(PROMPT)]),
    },
]  # fmt: skip
"""Made for each call, because some of it counts; the last pads on the left."""
EVERY = PATHS | {name: kind() for name, kind in speclab.strategies(by_hand=False).items()}
del EVERY["DDTree"], EVERY["Retrieval"]


@pytest.mark.wide
@pytest.mark.parametrize("name", EVERY)
def test_greedy_text_is_the_librarys_own(name):
    """Every strategy, with some family and some of what a call may ask for."""
    place = list(EVERY).index(name)
    family = FAMILIES[place % len(FAMILIES)]
    asked = ASKED[place % len(ASKED)]
    own = model(family)
    text = generated(own, **asked())[0].tolist()
    inside = speclab.custom_generate(EVERY[name], [draft_of(family, NOISE), random_head(own)])
    assert generated(own, **asked(), custom_generate=inside)[0].tolist() == text
    assert text[-20:] != generated(own)[0].tolist()[-20:], "or the setting would test nothing"


class Watching(StoppingCriteria):
    """Ends the text at a length; notes what it and a streamer are given."""

    def __init__(self, length):
        self.length = length
        self.seen = []

    def __call__(self, input_ids, scores, **_):
        self.seen.append((input_ids.tolist(), scores))
        return torch.tensor([input_ids.shape[1] >= self.length])

    def put(self, value):
        self.seen.append((value.shape, value.tolist()))

    def end(self):
        self.seen.append("end")


def test_criteria_and_streamer_see_every_token():
    """A criterion cuts inside an accepted path; a streamer goes to custom_generate."""
    draft = draft_of("llama", NOISE)
    for length in range(len(PROMPT) + 1, len(PROMPT) + 7):
        asked = {"return_dict_in_generate": length % 2 == 0}
        own, ours = Watching(length), Watching(length)
        inside = speclab.custom_generate(TREE, draft, streamer=ours)
        want = generated(model(), stopping_criteria=[own], streamer=own, **asked)
        got = generated(model(), stopping_criteria=[ours], custom_generate=inside, **asked)
        assert own.seen == ours.seen
        if length % 2 == 0:
            assert got.past_key_values is None
            want, got = want.sequences, got.sequences
        assert torch.equal(want, got)
    criteria = [MaxLengthCriteria(len(PROMPT) + 9)]
    asked = {"stopping_criteria": criteria, "return_dict_in_generate": True}
    bare = generated(model(), 4, custom_generate=inside, **asked)
    assert bare.sequences.shape[1] == len(PROMPT) + 9, "a user's length replaces max_new_tokens"


SMALL = {"vocab": 5, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32}


def test_sampled_texts_have_the_librarys_distribution():
    target = tiny("gpt2", seed=1, **SMALL)
    inside = speclab.custom_generate(
        DRAWN["tree without replacement"], tiny("gpt2", seed=2, **SMALL)
    )
    sampling = {"temperature": 1.3, "top_k": 4, "top_p": 0.9}
    torch.manual_seed(7)
    texts = Counter()
    for _ in range(150):
        text = target.generate(
            torch.tensor([[1, 3, 0]]), max_new_tokens=3, do_sample=True, custom_generate=inside, **sampling
        )  # fmt: skip
        texts[tuple(text[0, 3:].tolist())] += 1
    due = text_distribution(lambda after: next_logits(target, [1, 3, 0, *after]), 3, **sampling)
    assert_drawn_from(texts, due)


def test_a_seed_repeats_a_sampled_text_from_the_first_call_on_and_greedy_draws_no_number():
    inside = speclab.custom_generate(TREE, draft_of("llama", NOISE))

    def sampled(seed):
        torch.manual_seed(seed)
        return generated(model(), do_sample=True, custom_generate=inside).tolist()

    assert sampled(1) == sampled(1) != sampled(2)
    before = torch.get_rng_state()
    generated(model(), 4, custom_generate=inside)
    assert torch.equal(before, torch.get_rng_state())


class Broken(Own):
    def __call__(self, input_ids, scores):
        if self.calls > 3:
            raise RuntimeError("broken")
        return super().__call__(input_ids, scores)


@pytest.mark.parametrize("processor", [Own(), Broken()], ids=["a text", "an error"])
def test_the_model_is_left_as_it_was(processor):
    own = tiny("llama", seed=3)
    own.set_attn_implementation("flex_attention")
    own.train()
    own.model.layers[1].eval()
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
    inside = speclab.custom_generate(TREE, draft)
    with suppress(RuntimeError):
        generated(own, 6, custom_generate=inside, logits_processor=[processor])
    assert processor.calls > 3
    assert state() == before


@pytest.mark.parametrize("family", ["mistral", "qwen3_next", "mamba2"])
def test_an_edited_model_is_seen(family):
    own = tiny(family, seed=3)
    inside = speclab.custom_generate(speclab.PromptLookup())
    texts = set()
    edits = [
        lambda: None,
        lambda: own.get_output_embeddings().weight.data.neg_(),
        lambda: setattr(own.generation_config, "repetition_penalty", 1.3),
        lambda: setattr(own.config, "sliding_window", 5),
    ][: 4 if family == "mistral" else 3]
    for edit in edits:
        edit()
        want = generated(own, 12)
        assert torch.equal(generated(own, 12, custom_generate=inside), want)
        texts.add(tuple(want[0].tolist()))
    assert len(texts) == len(edits)


def test_a_model_is_prepared_once(monkeypatch):
    own = tiny("llama", seed=3)
    probes = []
    probe = models_pair.check_trees
    monkeypatch.setattr(
        models_pair, "check_trees", lambda runner: probes.append(runner) or probe(runner)
    )
    inside = speclab.custom_generate(TREE, noisy(own, NOISE))
    for _ in range(2):
        generated(own, custom_generate=inside)
    assert len(probes) == 2, "the target and the draft"


def test_drafts_of_every_kind(tmp_path):
    own = model()
    draft_of("llama", NOISE).save_pretrained(tmp_path)
    pair = speclab.load_pair(target=own, heads=random_head(own, 1))
    want = generated(own, 12)
    for given in (tmp_path, pair.heads[0], random_head(own, 3, layers=(0, 1, 2))):
        inside = speclab.custom_generate(TREE, given)
        assert torch.equal(want, generated(own, 12, custom_generate=inside))


HUB = Path(__file__).parents[2] / "hub"


def test_as_a_repository_of_a_decoding_method(tmp_path, monkeypatch):
    """transformers copies the folder's code and runs it; inside a checkpoint it is the model's `generate`."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", tmp_path / "modules")
    own = model()
    want = generated(own, do_sample=False)
    asked = {"custom_generate": str(HUB), "trust_remote_code": True, "do_sample": False}
    tree = {"strategy": "DynaTree(node_budget=6)", "assistant_model": draft_of("llama", NOISE)}
    for more in ({}, tree, tree):
        streamer = Watching(0)
        assert torch.equal(want, generated(own, **asked, **more, streamer=streamer))
        assert [token for _, (token,) in streamer.seen[1:-1]] == want[0, len(PROMPT) :].tolist()
    with refused(errors.NoDraftError, "DynaTree"):
        generated(own, **asked, strategy="DynaTree")
    own.save_pretrained(tmp_path / "checkpoint")
    shutil.copytree(HUB / "custom_generate", tmp_path / "checkpoint/custom_generate")
    loaded = type(own).from_pretrained(tmp_path / "checkpoint", trust_remote_code=True)
    given = {"input_ids": IDS, "max_new_tokens": 20, "pad_token_id": 0, "do_sample": False}
    assert torch.equal(want, loaded.generate(**given, **tree))
    needed = (HUB / "custom_generate/requirements.txt").read_text().split()
    project = tomllib.loads((HUB.parent / "pyproject.toml").read_text())["project"]
    assert needed == [project["name"]]


class Nothing(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return torch.full_like(scores, -torch.inf)


REFUSED = {
    "num_beams=3": {"num_beams": 3, "do_sample": True},
    "[2, 13]": {"ids": IDS.repeat(2, 1)},
    "cache_implementation='static'": {"cache_implementation": "static"},
    "attention_mask": {"attention_mask": torch.tensor([[1] * 5 + [0] + [1] * 7])},
    "pad on the left": {"attention_mask": torch.tensor([[1] * 12 + [0]])},
    "position_ids": {"position_ids": torch.arange(13)[None] + 2},
    "inputs_embeds": {"ids": None, "inputs_embeds": torch.zeros(1, 3, 32)},
    "no token": {"do_sample": True, "logits_processor": [Nothing()]},
    "assistant_model": {"assistant_model": tiny("llama")},  # the library would ignore it
    "output_scores": {"output_scores": True},
    "context": {"new": 1000},
    "64 is": {"ids": torch.tensor([[64, 3]]), "attention_mask": torch.ones(1, 2)},
}
ERRORS = {"context": errors.ContextExceededError, "64 is": errors.PromptError}


@pytest.mark.parametrize("word", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(inside, word):
    with refused(ERRORS.get(word, errors.SettingsError), word):
        generated(model(), **{"new": 4, "custom_generate": inside} | REFUSED[word])


def test_a_cache_with_a_text_is_refused(inside):
    cache = DynamicCache()
    model()(IDS[:, :4], past_key_values=cache)
    with refused(errors.SettingsError, "past_key_values"):
        generated(model(), past_key_values=cache, custom_generate=inside)


def test_a_model_that_reads_more_than_the_text_is_refused_until_it_does_not(inside):
    """As peft's prompt tuning, which lends a model another method for the time of a call."""
    own = tiny("llama", seed=3)
    prepare = own.prepare_inputs_for_generation
    own.prepare_inputs_for_generation = partial(prepare)
    with refused(errors.UnsupportedModelError, "prepare_inputs_for_generation", "peft", "LoRA"):
        generated(own, 4, custom_generate=inside)
    own.prepare_inputs_for_generation = prepare
    assert generated(own, 4, custom_generate=inside).shape == (1, len(PROMPT) + 4)
