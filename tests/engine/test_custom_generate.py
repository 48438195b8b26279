"""Inside `generate`: what it hands over is honoured as the library does, or refused by name; the model stays as it was.

That greedy texts are equal stands in test_custom_generate_matrix.py.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import torch
from distributions import assert_drawn_from, text_distribution
from heads import random_head
from pairs import NOISE, PROMPT, draft_of, noisy, target_of
from reference.decoding import next_logits
from refusals import refused
from tiny import tiny
from transformers import (
    AutoModelForSeq2SeqLM,
    DynamicCache,
    LogitsProcessor,
    MaxLengthCriteria,
    StoppingCriteria,
    StopStringCriteria,
    T5Config,
    pipeline,
)
from variants import DRAWN, VARIANTS

import speclab
from speclab.errors import (
    ContextExceededError,
    NoDraftError,
    SettingsError,
    TokenizerMismatchError,
    UnsupportedModelError,
)
from speclab.models import pair as models_pair
from speclab.models.runner import Runner

pytestmark = pytest.mark.model

IDS = torch.tensor([PROMPT])
TREE = VARIANTS["wide dynatree"]
LOOKUP = speclab.PromptLookup()


def model():
    return target_of("llama")


@pytest.fixture(scope="module")
def inside():
    return speclab.custom_generate(TREE, draft_of("llama", NOISE))


def both(inside, ids=IDS, new=20, **settings):
    """What the library returns by itself, and with the callable; settings may be made for each."""
    ways = []
    for more in ({}, {"custom_generate": inside}):
        made = settings["make"]() if "make" in settings else settings
        ways.append(model().generate(ids, max_new_tokens=new, pad_token_id=0, **made, **more))
    return ways


# What comes back


def test_the_record_holds_scores_and_logits_of_every_token(inside):
    own, ours = both(
        inside, return_dict_in_generate=True, output_scores=True, output_logits=True, repetition_penalty=1.5
    )
    assert torch.equal(own.sequences, ours.sequences)
    assert len(ours.scores) == len(ours.logits) == 20
    for name in ("scores", "logits"):
        torch.testing.assert_close(getattr(ours, name), getattr(own, name), rtol=1e-4, atol=1e-4)
    assert not ours.scores[0].is_inference()
    assert not torch.equal(ours.scores[3], ours.logits[3])
    assert ours.attentions is ours.hidden_states is ours.past_key_values is None


def test_the_record_holds_no_more_than_is_asked(inside):
    _, ours = both(inside, return_dict_in_generate=True)
    assert ours.scores is ours.logits is None
    assert ours.sequences.shape == (1, len(PROMPT) + 20)


class Watching(StoppingCriteria):
    """Ends the text at a length; notes what it was shown."""

    def __init__(self, length):
        self.length, self.seen = length, []

    def __call__(self, input_ids, scores, **_):
        self.seen.append((input_ids.tolist(), None if scores is None else len(scores)))
        return torch.tensor([input_ids.shape[1] >= self.length])


@pytest.mark.parametrize("record", [False, True])
def test_a_criterion_is_asked_after_every_token_and_cuts_inside_an_accepted_path(inside, record):
    for length in range(len(PROMPT) + 1, len(PROMPT) + 9):
        criteria = []

        def make(length=length, criteria=criteria):
            criteria.append(Watching(length))
            more = {"return_dict_in_generate": True, "output_scores": True} if record else {}
            return {"stopping_criteria": [criteria[-1]], **more}

        own, ours = both(inside, make=make)
        assert criteria[0].seen == criteria[1].seen
        assert own.sequences.tolist() == ours.sequences.tolist() if record else own.tolist() == ours.tolist()


def test_a_length_of_the_users_own_takes_the_place_of_max_new_tokens(inside):
    own, ours = both(inside, new=4, make=lambda: {"stopping_criteria": [MaxLengthCriteria(len(PROMPT) + 9)]})
    assert own.tolist() == ours.tolist()
    assert ours.shape[1] == len(PROMPT) + 9


class Listening:
    """A streamer that notes all that happens to it."""

    def __init__(self):
        self.heard = []

    def put(self, value):
        self.heard.append((value.shape, value.tolist()))

    def end(self):
        self.heard.append("end")


def test_a_streamer_hears_prompt_tokens_and_end_as_from_the_library():
    """It goes to custom_generate: transformers does not hand it on."""
    own, ours = Listening(), Listening()
    model().generate(IDS, max_new_tokens=9, pad_token_id=0, streamer=own)
    inside = speclab.custom_generate(TREE, draft_of("llama", NOISE), streamer=ours)
    model().generate(IDS, max_new_tokens=9, pad_token_id=0, custom_generate=inside)
    assert own.heard == ours.heard
    assert len(ours.heard) == 11


# Sampling


VOCAB, LENGTH, SHORT = 5, 3, [1, 3, 0]
SMALL = {"vocab": VOCAB, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32}


class Repeated(LogitsProcessor):
    """Likes the newest token: what a node's distribution is follows from its own path."""

    def __call__(self, input_ids, scores):
        return scores.scatter_add(1, input_ids[:, -1:], torch.full((len(scores), 1), 1.5))


@pytest.mark.parametrize(
    ("strategy", "liked"),
    [
        (DRAWN["drawn chain"], 0.0),
        (DRAWN["drawn chain"], 1.5),
        (DRAWN["tree without replacement"], 1.5),
        (VARIANTS["wide dynatree"], 1.5),
        (VARIANTS["lookahead"], 0.0),
    ],
    ids=["drawn chain", "drawn chain, own processor", "drawn tree", "deterministic tree", "lookahead"],
)
def test_sampled_texts_have_the_librarys_distribution(strategy, liked):
    target = tiny("gpt2", seed=1, **SMALL)
    inside = speclab.custom_generate(strategy, tiny("gpt2", seed=2, **SMALL))
    sampling = {"temperature": 1.3, "top_k": 4, "top_p": 0.9}
    ids, found = torch.tensor([SHORT]), Counter()
    torch.manual_seed(7)
    for _ in range(150):
        processors = [Repeated()] if liked else []
        text = target.generate(
            ids, max_new_tokens=LENGTH, do_sample=True, logits_processor=processors, custom_generate=inside, **sampling
        )
        found[tuple(text[0, len(SHORT) :].tolist())] += 1

    def logits(after):
        ids = [*SHORT, *after]
        return [score + liked * (token == ids[-1]) for token, score in enumerate(next_logits(target, ids))]

    assert_drawn_from(found, text_distribution(logits, LENGTH, **sampling))


def test_a_seed_repeats_a_sampled_text_and_greedy_draws_no_number(inside):
    def sampled(seed):
        torch.manual_seed(seed)
        return model().generate(IDS, max_new_tokens=20, do_sample=True, custom_generate=inside, pad_token_id=0).tolist()

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)
    before = torch.get_rng_state()
    model().generate(IDS, max_new_tokens=4, custom_generate=inside, pad_token_id=0)
    assert torch.equal(before, torch.get_rng_state())


def test_processors_that_leave_no_token_to_draw_are_named(inside):
    class Nothing(LogitsProcessor):
        def __call__(self, input_ids, scores):
            return torch.full_like(scores, -torch.inf)

    with refused(SettingsError, "processors", "no token"):
        model().generate(IDS, do_sample=True, logits_processor=[Nothing()], custom_generate=inside, max_new_tokens=4)


# The model stays as it was, and is prepared once


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flex_attention"])
def test_the_model_is_left_as_it_was(attention):
    own = tiny("llama", seed=3)
    own.set_attn_implementation(attention)
    own.train()
    own.model.layers[1].eval()
    handle = own.model.norm.register_forward_hook(lambda *_: None)
    attributes, config = vars(own).copy(), own.config.to_dict()
    modes = [part.training for part in own.modules()]
    weights = [(weight.data_ptr(), weight._version) for weight in own.parameters()]
    draft = noisy(own, NOISE)
    draft.train()
    own.generate(IDS, max_new_tokens=6, custom_generate=speclab.custom_generate(TREE, draft))
    assert vars(own) == attributes
    assert own.config.to_dict() == config
    assert own.config._attn_implementation == attention
    assert [part.training for part in own.modules()] == modes
    assert [(weight.data_ptr(), weight._version) for weight in own.parameters()] == weights
    assert list(own.model.norm._forward_hooks) == [handle.id]
    assert draft.training


def test_an_error_inside_leaves_the_model_as_it_was(inside):
    class Broken(LogitsProcessor):
        def __call__(self, input_ids, scores):
            raise RuntimeError("broken")

    own = tiny("llama", seed=3).train()
    with pytest.raises(RuntimeError, match="broken"):
        own.generate(IDS, max_new_tokens=6, custom_generate=inside, logits_processor=[Broken()])
    assert all(part.training for part in own.modules())


def test_no_weight_is_copied_and_a_trained_model_is_seen():
    own = tiny("gpt_neox", seed=3)
    inside = speclab.custom_generate(LOOKUP)
    runs = {"max_new_tokens": 12, "pad_token_id": 0}
    assert torch.equal(own.generate(IDS, **runs), own.generate(IDS, custom_generate=inside, **runs))
    with torch.no_grad():
        for weight in own.parameters():
            weight.add_(0.2 * torch.randn_like(weight, generator=None))
    own.generation_config.repetition_penalty = 1.3
    assert torch.equal(own.generate(IDS, **runs), own.generate(IDS, custom_generate=inside, **runs))


def test_a_model_is_prepared_once_and_a_pass_is_made_for_each_iteration(monkeypatch):
    own, probes, passes = tiny("llama", seed=3), [], []
    probe, logits = models_pair.check_trees, Runner.logits
    monkeypatch.setattr(models_pair, "check_trees", lambda runner: probes.append(runner.name) or probe(runner))
    inside = speclab.custom_generate(TREE, noisy(own, NOISE))
    own.generate(IDS, max_new_tokens=20, custom_generate=inside)
    assert len(probes) == 2
    monkeypatch.setattr(Runner, "logits", lambda self, *a, **k: passes.append(self.model) or logits(self, *a, **k))
    own.generate(IDS, max_new_tokens=20, custom_generate=inside)
    assert len(probes) == 2
    of_target = [each for each in passes if each.model is own.model]
    assert 2 < len(of_target) < 20  # the prompt, and one for each iteration


# Drafts


def test_drafts_of_every_kind(tmp_path):
    own, draft = model(), draft_of("llama", NOISE)
    draft.save_pretrained(tmp_path / "draft")
    heads = [random_head(own, seed, name) for seed, name in ((1, "prose"), (2, "code"))]
    pair = speclab.load_pair(target=own, draft=draft, heads=heads)
    expected = own.generate(IDS, max_new_tokens=12, pad_token_id=0)
    for strategy, given in (
        (TREE, tmp_path / "draft"),
        (TREE, str(tmp_path / "draft")),
        (TREE, pair.draft),
        (TREE, heads[0]),
        (TREE, random_head(own, 3, "fused", layers=(0, 1, 2))),
        (VARIANTS["best first"], pair.heads[1]),
        (speclab.DualDraft(), heads),
        (speclab.DualDraft(), [draft, heads[0]]),
        (LOOKUP, draft),
    ):
        inside = speclab.custom_generate(strategy, given)
        assert torch.equal(expected, own.generate(IDS, max_new_tokens=12, pad_token_id=0, custom_generate=inside))


def test_a_draft_that_lacks_padding_columns_of_the_model_drafts_for_it(inside, tmp_path):
    """Models of one family whose vocabularies are padded to other sizes; the tokenizer says that they are one."""
    pair = speclab.load_pair()
    tokenizer, paths = pair.tokenizer, {}
    for name, columns in (("wide", len(tokenizer) + 8), ("narrow", len(tokenizer))):
        paths[name] = tmp_path / name
        tiny("llama", vocab=columns).save_pretrained(paths[name])
        tokenizer.save_pretrained(paths[name])
    own = type(model()).from_pretrained(paths["wide"])
    ids, settings = torch.tensor([[5, 6, 7]]), {"max_new_tokens": 6, "pad_token_id": 0}

    class Width(LogitsProcessor):
        def __call__(self, input_ids, scores):
            scores[:, len(tokenizer) :] = -torch.inf
            assert scores.shape == (1, len(tokenizer) + 8)
            return scores

    for draft in (paths["narrow"], str(paths["narrow"])):
        inside = speclab.custom_generate(TREE, draft)
        ways = [{}, {"custom_generate": inside}]
        own_text, ours = (own.generate(ids, logits_processor=[Width()], **settings, **way) for way in ways)
        assert torch.equal(own_text, ours)


# With a tokenizer: the mini family


@pytest.fixture(scope="module")
def mini():
    pair = speclab.load_pair()
    return pair, speclab.custom_generate(TREE, draft=pair.draft)


def test_stop_strings_cut_where_the_library_does(mini):
    pair, inside = mini
    inputs = pair.tokenizer("Once upon a time there was a", return_tensors="pt")
    for strings in (["girl", " a l"], ["ed Ma"]):
        criteria = [StopStringCriteria(pair.tokenizer, strings)]
        own = pair.target.model.generate(**inputs, max_new_tokens=30, stopping_criteria=criteria)
        ours = pair.target.model.generate(
            **inputs, max_new_tokens=30, stopping_criteria=criteria, custom_generate=inside
        )
        assert torch.equal(own, ours)
        assert ours.shape[1] < inputs["input_ids"].shape[1] + 30


def test_a_pipeline_passes_it_on(mini):
    pair, inside = mini
    pipe = pipeline("text-generation", model=pair.target.model, tokenizer=pair.tokenizer)
    asked = {"max_new_tokens": 20, "do_sample": False}
    prompt = "Once upon a time there was"
    assert pipe(prompt, custom_generate=inside, **asked) == pipe(prompt, **asked)


def test_no_time_leaves_one_token(mini):
    pair, inside = mini
    inputs = pair.tokenizer("Once upon a time", return_tensors="pt")
    ours = pair.target.model.generate(**inputs, max_new_tokens=30, max_time=1e-9, custom_generate=inside)
    assert ours.shape[1] == inputs["input_ids"].shape[1] + 1


# What is refused


ASKED = {
    "num_beams": ({"num_beams": 2}, "num_beams=2"),
    "sampled beams": ({"num_beams": 3, "do_sample": True}, "num_beams=3"),
    "num_return_sequences": ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences=2"),
    "batch": ({"inputs": IDS.repeat(2, 1)}, "[2, 13]"),
    "prompt_lookup_num_tokens": ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens"),
    "output_attentions": ({"output_attentions": True, "return_dict_in_generate": True}, "output_attentions"),
    "output_hidden_states": ({"output_hidden_states": True, "return_dict_in_generate": True}, "output_hidden_states"),
    "use_cache": ({"use_cache": False}, "use_cache=False"),
    "cache_implementation": ({"cache_implementation": "static"}, "cache_implementation='static'"),
    "prefill_chunk_size": ({"prefill_chunk_size": 4}, "prefill_chunk_size"),
    "dola_layers": ({"dola_layers": "low"}, "dola_layers"),
    "a hole in the mask": ({"attention_mask": torch.tensor([[1] * 5 + [0] + [1] * 7])}, "attention_mask"),
    "right padding": ({"attention_mask": torch.tensor([[1] * 12 + [0]])}, "pad on the left"),
    "a pad_token_id in the text": ({"pad_token_id": 40}, "pad_token_id"),
    "nothing but padding": ({"attention_mask": torch.zeros(1, 13, dtype=torch.long)}, "attention_mask"),
    "position_ids": ({"position_ids": torch.arange(13)[None] + 2}, "position_ids"),
    "inputs_embeds": ({"inputs": None, "inputs_embeds": torch.zeros(1, 3, 32)}, "inputs_embeds"),
}


@pytest.mark.parametrize("wrong", [1.0, 64, -1])
def test_what_is_no_id_of_the_model_is_refused_before_a_pass(inside, wrong):
    with refused(speclab.PromptError, f"{wrong} is"):
        model().generate(
            torch.tensor([[wrong, 3]]), max_new_tokens=4, custom_generate=inside, attention_mask=torch.ones(1, 2)
        )


def test_a_mask_of_another_length_is_refused(inside):
    with refused(SettingsError, "mask"):
        model().generate(IDS, attention_mask=torch.ones(1, 40), max_new_tokens=4, custom_generate=inside)


@pytest.mark.parametrize(("asked", "said"), ASKED.values(), ids=ASKED)
def test_what_cannot_be_honoured_is_refused_by_name(inside, asked, said):
    settings = {"inputs": IDS, "max_new_tokens": 4, "pad_token_id": 0} | asked
    with refused(SettingsError, said):
        model().generate(custom_generate=inside, **settings)


def test_a_cache_that_holds_a_text_already_is_refused(inside):
    cache = DynamicCache()
    model()(IDS[:, :4], past_key_values=cache)
    with refused(SettingsError, "past_key_values"):
        model().generate(IDS, max_new_tokens=4, pad_token_id=0, past_key_values=cache, custom_generate=inside)


def test_a_strategy_in_the_callables_place_is_refused_by_what_belongs_there():
    """The library ignores what it cannot call, and would decode plainly."""
    with refused(SettingsError, "custom_generate=speclab.custom_generate(DynaTree"):
        model().generate(IDS, max_new_tokens=4, custom_generate=TREE)


def test_a_text_beyond_the_context_is_refused(inside):
    with refused(ContextExceededError, "context", "243"):
        model().generate(IDS, max_new_tokens=1000, custom_generate=inside, pad_token_id=0)


def test_models_that_verify_no_tree_are_refused(inside):
    sizes = {"vocab_size": 64, "d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    t5 = AutoModelForSeq2SeqLM.from_config(T5Config(decoder_start_token_id=0, **sizes))
    with refused(UnsupportedModelError, "encoder-decoder"):
        t5.generate(IDS, max_new_tokens=4, custom_generate=inside)
    for family in ("bloom", "mamba"):
        with refused(UnsupportedModelError, family, "choose another model"):
            tiny(family).generate(IDS, max_new_tokens=4, custom_generate=inside)


def test_a_model_that_reads_more_than_the_text_is_refused_until_it_does_not(inside):
    """As peft's prompt tuning, which lends a model another method for the time of a call."""
    own = tiny("llama", seed=3)
    prepare = own.prepare_inputs_for_generation
    own.prepare_inputs_for_generation = partial(prepare)
    with refused(UnsupportedModelError, "prepare_inputs_for_generation", "peft", "LoRA"):
        own.generate(IDS, max_new_tokens=4, custom_generate=inside)
    own.prepare_inputs_for_generation = prepare
    assert own.generate(IDS, max_new_tokens=4, custom_generate=inside).shape == (1, len(PROMPT) + 4)


def test_a_draft_with_another_tokenizer_is_refused(tmp_path):
    with refused(TokenizerMismatchError, "50", "64"):
        model().generate(IDS, max_new_tokens=4, custom_generate=speclab.custom_generate(TREE, tiny("llama", vocab=50)))
    tokenizer, paths = speclab.load_pair().tokenizer, [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        tiny("llama", vocab=len(tokenizer)).save_pretrained(path)
        tokenizer.save_pretrained(path)
        tokenizer.add_tokens(["<new>"])
        tokenizer.bos_token = "<new>"
    own = type(model()).from_pretrained(paths[0])
    for draft in (paths[1], type(model()).from_pretrained(paths[1])):
        with refused(TokenizerMismatchError, "tokenizers", "family"):
            own.generate(IDS, max_new_tokens=4, custom_generate=speclab.custom_generate(TREE, draft))


def test_heads_of_another_model_are_refused():
    head = random_head(tiny("llama", vocab=50))
    with refused(speclab.HeadMismatchError, "vocabulary"):
        model().generate(IDS, max_new_tokens=4, custom_generate=speclab.custom_generate(TREE, head))
    with refused(NoDraftError, "heads"):
        one = speclab.custom_generate(speclab.DualDraft(), random_head(model()))
        model().generate(IDS, max_new_tokens=4, custom_generate=one)


@pytest.mark.parametrize(
    ("strategy", "draft", "kind", "said"),
    [
        (TREE, None, NoDraftError, "draft="),
        (TREE, [], NoDraftError, "draft="),
        (TREE, 5, SettingsError, "Expected a model, got 5"),
        (TREE, ["x", None], SettingsError, "Expected a model, got None"),
        ("DynaTree", None, SettingsError, "strategy"),
        (speclab.DynaTree, None, SettingsError, "strategy"),
        (speclab.ByHand(), None, SettingsError, "person"),
    ],
    ids=str,
)
def test_no_strategy_or_no_draft(strategy, draft, kind, said):
    with pytest.raises(kind, match=said):
        speclab.custom_generate(strategy, draft)
