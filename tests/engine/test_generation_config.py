"""The target's own text is what `model.generate` writes with its generation_config.

Its logits processors are followed at every row of every tree, its end-of-text ids end the text, and
a setting that cannot be followed is named.
"""

import copy
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from support.pairs import PROMPT, library_text, pair_of, target_of
from support.records import ran
from support.tiny import tiny
from support.variants import VARIANTS
from transformers import GenerationConfig

import speclab
from speclab.errors import GenerationConfigWarning
from speclab.models import processors
from speclab.models.runner import Runner
from speclab.pair import ModelPair

pytestmark = pytest.mark.model

NEW = 20


def pair():
    return pair_of("llama")


@contextmanager
def asking(**settings):
    """The target's generation_config with these settings."""
    model = target_of("llama")
    before = model.generation_config
    model.generation_config = copy.deepcopy(before)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    try:
        yield pair()
    finally:
        model.generation_config = before


def decoded(strategy, new=NEW, **settings):
    return speclab.generate(pair(), strategy, PROMPT, max_new_tokens=new, **settings).token_ids


def library(new=NEW):
    return library_text(target_of("llama"), PROMPT, new)


@cache
def bare():
    return tuple(library())


ASKED = {
    "repetition_penalty": lambda _: {"repetition_penalty": 1.5, "renormalize_logits": True},
    "begin_suppress_tokens": lambda own: {"begin_suppress_tokens": [own[0]]},
    "min_new_tokens over min_length": lambda own: {
        "min_new_tokens": 2,
        "min_length": 33,
        "eos_token_id": own[4],
    },
    "min_length": lambda own: {"min_length": len(PROMPT) + 9, "eos_token_id": own[4]},
    "sequence_bias": lambda own: {"sequence_bias": [[[own[2]], -9.0], [[own[0], own[1]], -9.0]]},
    "everything ruled out": lambda _: {"suppress_tokens": list(range(64))},
    "forced_eos_token_id": lambda _: {"forced_eos_token_id": 3},
    "exponential_decay_length_penalty": lambda _: {
        "exponential_decay_length_penalty": (5, 1.5),
        "eos_token_id": 3,
    },
}
"""Settings by the text that they are to change."""
ROWS = [
    VARIANTS[name]
    for name in ("wide dynatree", "dynatree as in the paper", "lookahead", "copies and transitions")
]
"""Strategies whose rows see their own paths: of a tree, of one with a drafted root, of a window, of merged trees."""


@pytest.mark.wide
@pytest.mark.parametrize("place", range(len(ASKED)), ids=ASKED)
def test_greedy_text_is_what_generate_writes(place):
    """Every setting with plain decoding and another strategy, every strategy with many settings."""
    with asking(**list(ASKED.values())[place](bare())):
        own = library()
        assert own != list(bare()), "a setting that changes nothing would test nothing"
        assert decoded(VARIANTS["plain"]) == decoded(ROWS[place % 4], check=True) == own


def test_logits_that_are_not_numbers_are_removed_where_that_is_asked():
    target = tiny("gpt_neox", tie_word_embeddings=False)
    with torch.no_grad():
        target.get_output_embeddings().weight[3] = torch.nan
    target.generation_config.remove_invalid_values = True
    result = speclab.generate(
        ModelPair(Runner(target)), speclab.PromptLookup(), PROMPT, max_new_tokens=9, check=True
    )
    assert result.token_ids == library_text(target, PROMPT, 9)


@pytest.mark.parametrize("root", ["verified", "drafted"])
def test_a_fork_goes_on_by_the_same_config_and_the_same_prompt(root):
    strategy = speclab.DynaTree(root=root)
    with asking(min_new_tokens=16, repetition_penalty=1.3, eos_token_id=bare()[4]):
        own = library()
        session = ran(pair(), strategy, PROMPT, max_new_tokens=NEW, check=True)
        assert speclab.clinic.check(session) == ()
        twin = session.fork(at=1, strategy=VARIANTS["lookahead"])
        twin.run()
        assert twin.token_ids == own
        longer = session.fork(at=1, max_new_tokens=NEW + 9)
        longer.run()
        assert longer.token_ids == library(NEW + 9)


def test_what_is_recommended_for_sampling_changes_no_greedy_text():
    with asking(do_sample=True, temperature=0.7, top_k=20):
        assert decoded(VARIANTS["chain"]) == list(bare())


@pytest.mark.parametrize("asked", [{"num_beams": 4}, {"stop_strings": ["a"]}], ids=str)
def test_what_is_not_followed_is_warned_of_by_name_and_recorded(asked):
    (name,) = asked
    with asking(**asked), pytest.warns(GenerationConfigWarning, match=name):
        session = speclab.Session(pair(), VARIANTS["chain"], PROMPT, max_new_tokens=4)
    assert name in session.trace.models["target_not_followed"]
    session.run()
    assert session.token_ids == list(bare())[:4]


OF_NO_TEXT = """
max_length max_new_tokens early_stopping length_penalty low_memory num_beam_groups diversity_penalty
use_cache cache_implementation cache_config max_cache_len prefill_chunk_size compile_config disable_compile
continuous_batching_config output_attentions output_hidden_states output_scores output_logits
return_dict_in_generate transformers_version pad_token_id bos_token_id eos_token_id decoder_start_token_id
is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold
max_matching_ngram_size assistant_lookbehind target_lookbehind
do_sample temperature top_k top_p min_p top_h typical_p epsilon_cutoff eta_cutoff
"""
"""How long, sampling, of beams alone, where things are kept, ids, the library's own drafting."""


def test_every_setting_of_the_library_is_known():
    """A setting that a new version brings is followed, warned of, or named here as one that changes no text."""
    known = {
        *processors.FOLLOWED,
        *processors.NOT_FOLLOWED,
        *OF_NO_TEXT.split(),
    }
    assert {name for name in vars(GenerationConfig()) if not name.startswith("_")} - known == set()


@pytest.mark.parametrize(
    "asked",
    [{"repetition_penalty": -1.0}, {"sequence_bias": [[[99], 1.0]]}, {"eos_token_id": "</s>"}],
    ids=str,
)
def test_a_value_that_the_library_refuses_is_one_sentence(asked):
    with asking(**asked), pytest.raises(speclab.SettingsError, match=next(iter(asked))):
        decoded(VARIANTS["chain"], 4)


@pytest.mark.parametrize("kind", [int, lambda id_: torch.tensor([id_])])
def test_the_generation_config_alone_says_where_a_text_ends(kind):
    with asking(eos_token_id=kind(bare()[4])):
        own = library()
        assert own == list(bare())[:5]
        result = speclab.generate(pair(), VARIANTS["dynatree"], PROMPT, max_new_tokens=NEW)
        assert (result.token_ids, result.finished) == (own, "end of text")
        assert decoded(VARIANTS["dynatree"], stop_at_eos=False) == list(bare())
