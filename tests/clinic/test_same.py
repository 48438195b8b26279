"""Two texts that should be equal: whose the difference is."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from support.command import speclab_command
from support.refusals import refused
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import speclab
from speclab import clinic
from speclab.errors import SettingsError

pytestmark = pytest.mark.model
PROMPT = "Once upon a time there was a little dog"


@cache
def pair():
    return speclab.load_pair()


def greedy(head, count=48):
    """The ids of a text that begins with some, and what the target writes after them."""
    ids = pair().encode(PROMPT) + head
    plain = speclab.Autoregressive()
    result = speclab.generate(pair(), plain, ids, max_new_tokens=count - len(head))
    return head + list(result.token_ids)


@cache
def own_ids():
    return greedy([])


def text_of(ids):
    return pair().continuation(pair().encode(PROMPT), ids)


def choices(position):
    """The target's tokens at a position of its text, best first, with their logits."""
    ids = pair().encode(PROMPT) + own_ids()[:position]
    with torch.inference_mode():
        row = pair().target.model(torch.tensor([ids])).logits[0, -1]
    return row.sort(descending=True)


def text_with(position, rank):
    """The text with the token of another rank at a position, and what the target writes after it."""
    return text_of(greedy(own_ids()[:position] + [int(choices(position).indices[rank])]))


@pytest.mark.parametrize("position", [3, 30])
def test_a_token_that_the_target_would_not_choose_is_a_fault(position):
    own = text_of(own_ids())
    wrong = text_with(position, 4)
    for texts, verdict in (
        ((own, wrong), "fault in B"),
        ((wrong, own), "fault in A"),
        ((wrong, text_with(position, 5)), "fault in both"),
    ):
        result = clinic.same(*texts, pair(), PROMPT)
        assert (result.verdict, result.position, result.exit_status) == (verdict, position, 1)
        assert list(result.prompt_ids) == pair().encode(PROMPT)
        assert list(result.token_ids) == own_ids()[:position]


def test_a_gap_within_the_engines_rounding_is_a_tie():
    """The same two texts are a fault in float32, and a tie in a precision that changes more."""
    gaps = {at: float(choices(at).values[:2].diff().abs()) for at in range(2, 48)}
    position = min(gaps, key=gaps.get)
    texts = text_of(own_ids()), text_with(position, 1)
    exact = clinic.same(*texts, pair(), PROMPT)
    rough = clinic.same(*texts, pair(), PROMPT, dtype="int4")
    assert exact.rounding < rough.rounding
    assert exact.gap_b == pytest.approx(gaps[position], abs=1e-3)
    assert (rough.verdict, rough.exit_status) == ("tie", 0)


def test_a_text_that_was_cut_is_the_same_and_one_that_goes_on_wrongly_is_not():
    own = text_of(own_ids())
    shorter = text_of(own_ids()[:20])
    assert clinic.same(own, shorter, pair(), PROMPT).verdict == "same"
    assert clinic.same(own, own, pair()).position is None
    assert clinic.same(PROMPT + own, own, pair(), PROMPT).verdict == "same"
    assert clinic.same(shorter, text_with(20, 6), pair(), PROMPT).verdict == "fault in B"


def test_texts_of_another_model_are_nobodys():
    other = "The court of appeal held on Tuesday that the tax was lawful, and sent the case back."
    result = clinic.same(other, other.replace("lawful", "void"), pair(), PROMPT)
    assert (result.verdict, result.exit_status) == ("neither", 2)
    assert clinic.same("A cat", "No dog", pair()).exit_status == 2, "no prompt, no first token"


def test_the_command_has_an_exit_code_and_json(tmp_path):
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_text(text_of(own_ids()) + "\n")
    b.write_text(text_with(5, 4))
    asked = ["--target", "mini", "--prompt", PROMPT]
    done = speclab_command("same", a, b, *asked, "--json")
    assert (done.exit_code, json.loads(done.output)["verdict"]) == (1, "fault in B")
    b.write_text(text_of(own_ids()))
    assert speclab_command("same", a, b, *asked).exit_code == 0
    c = tmp_path / "c.txt"
    for content in (None, b"", b"\xff"):
        if content is not None:
            c.write_bytes(content)
        done = speclab_command("same", a, c, *asked)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "Errno" not in done.stderr


def test_what_cannot_be_compared_is_refused():
    words = WordLevel({"a": 0, "dog": 1, "?": 2}, unk_token="?")
    lower = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))
    calls = [
        (lambda: clinic.same("", "a", pair()), "empty"),
        (lambda: clinic.same("A dog", "a dog", replace(pair(), tokenizer=lower)), "tokenizer"),
        (lambda: clinic.same("a", "b", replace(pair(), tokenizer=None)), "no tokenizer"),
        (lambda: clinic.same("a " * 2000, "b", pair(), PROMPT), "longer"),
        (lambda: clinic.same("a", "b", pair(), PROMPT, dtype="float3"), "precision"),
        (lambda: clinic.same("a", "b", ""), "target"),
    ]
    for call, words in calls:
        with refused(SettingsError, words):
            call()
