"""Two texts that should be equal: whose the difference is."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from support.refusals import refused
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

import speclab
from speclab import clinic
from speclab.cli import app
from speclab.errors import SettingsError

pytestmark = pytest.mark.model
PROMPT = "Once upon a time there was a little dog"


@cache
def written():
    """The pair, the prompt's ids, and the target's own greedy ids."""
    pair = speclab.load_pair()
    session = speclab.Session(pair, speclab.Autoregressive(), PROMPT, max_new_tokens=48)
    session.run()
    return pair, session.prompt_ids, session.token_ids


def choices(position):
    """The target's tokens at a position of the text, best first, with their logits."""
    pair, prompt_ids, ids = written()
    with torch.inference_mode():
        row = pair.target.model(torch.tensor([prompt_ids + ids[:position]])).logits[0, -1]
    return row.sort(descending=True)


def text_with(position, token):
    """The text with another token at a position, and what the target writes after it."""
    pair, prompt_ids, ids = written()
    head = [*ids[:position], token]
    session = speclab.Session(
        pair, speclab.Autoregressive(), prompt_ids + head, max_new_tokens=len(ids) - len(head)
    )
    session.run()
    return pair.continuation(prompt_ids, head + session.token_ids)


def own_text():
    pair, prompt_ids, ids = written()
    return pair.continuation(prompt_ids, ids)


@pytest.mark.parametrize("position", [3, 30])
def test_a_token_that_the_target_would_not_choose_is_a_fault(position):
    pair, *_ = written()
    wrong = text_with(position, int(choices(position).indices[4]))
    for texts, verdict in (
        ((own_text(), wrong), "fault in B"),
        ((wrong, own_text()), "fault in A"),
        ((wrong, text_with(position, int(choices(position).indices[5]))), "fault in both"),
    ):
        result = clinic.same(*texts, pair, PROMPT)
        assert (result.verdict, result.position, result.exit_status) == (verdict, position, 1)
        assert list(result.prompt_ids) == written()[1]
        assert list(result.token_ids) == written()[2][:position]


def test_a_gap_within_the_engines_rounding_is_a_tie():
    """The same two texts are a fault in float32, and a tie in a precision that changes more."""
    pair, _, ids = written()
    gaps = [float(choices(at).values[:2].diff().abs()) for at in range(2, len(ids))]
    position = 2 + gaps.index(min(gaps))
    other = text_with(position, int(choices(position).indices[1]))
    exact = clinic.same(own_text(), other, pair, PROMPT)
    rough = clinic.same(own_text(), other, pair, PROMPT, dtype="int4")
    assert exact.rounding < rough.rounding
    assert exact.gap_b == pytest.approx(min(gaps), abs=1e-3)
    assert (rough.verdict, rough.exit_status) == ("tie", 0)


def test_a_text_that_was_cut_is_the_same_and_one_that_goes_on_wrongly_is_not():
    pair, prompt_ids, ids = written()
    shorter = pair.continuation(prompt_ids, ids[:20])
    assert clinic.same(own_text(), shorter, pair, PROMPT).verdict == "same"
    assert clinic.same(own_text(), own_text(), pair).position is None
    longer = text_with(20, int(choices(20).indices[6]))
    assert clinic.same(shorter, longer, pair, PROMPT).verdict == "fault in B"


def test_texts_of_another_model_are_nobodys():
    pair, *_ = written()
    other = "The court of appeal held on Tuesday that the tax was lawful, and sent the case back."
    result = clinic.same(other, other.replace("lawful", "void"), pair, PROMPT)
    assert (result.verdict, result.exit_status) == ("neither", 2)
    assert clinic.same("A cat", "No dog", pair).exit_status == 2, "no prompt, no first token"


def test_the_command_has_an_exit_code_and_json(tmp_path):
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_text(own_text() + "\n")
    b.write_text(text_with(5, int(choices(5).indices[4])))
    asked = ["same", str(a), str(b), "--target", "mini", "--prompt", PROMPT]
    done = CliRunner().invoke(app, [*asked, "--json"])
    assert (done.exit_code, json.loads(done.output)["verdict"]) == (1, "fault in B")
    b.write_text(own_text())
    assert CliRunner().invoke(app, asked).exit_code == 0
    b.write_text("")
    for words in (asked, [*asked[:2], str(tmp_path / "none.txt"), *asked[3:]]):
        done = CliRunner().invoke(app, words)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)


def test_what_cannot_be_compared_is_refused():
    pair, *_ = written()
    words = WordLevel({"a": 0, "dog": 1, "?": 2}, unk_token="?")
    lower = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))
    calls = [
        (lambda: clinic.same("", "a", pair), "empty"),
        (lambda: clinic.same("A dog", "a dog", replace(pair, tokenizer=lower)), "tokenizer"),
        (lambda: clinic.same("a", "b", replace(pair, tokenizer=None)), "no tokenizer"),
        (lambda: clinic.same("a " * 2000, "b", pair, PROMPT), "longer"),
        (lambda: clinic.same("a", "b", pair, PROMPT, dtype="float3"), "precision"),
        (lambda: clinic.same("a", "b", ""), "target"),
    ]
    for call, words in calls:
        with refused(SettingsError, words):
            call()
