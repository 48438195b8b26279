"""What a person may get wrong: one sentence with the cause and the way out, and nothing decoded is lost."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.refusals import LONE, PAIR, SHORT, VOCAB, both_ways, refused
from support.words import word_tokenizer

import speclab
from speclab import (
    ContextExceededError,
    DynaTree,
    LinearSpeculation,
    NoDraftError,
    PromptError,
    Session,
    SettingsError,
)

SPEAKING = replace(PAIR, tokenizer=word_tokenizer(VOCAB))

PROMPTS = {
    **dict.fromkeys(("", "  ", (), range(0)), ("prompt is empty", "at least one token")),
    # bytes that are not text, as from a terminal
    b"w1 \xff w2".decode(errors="surrogateescape"): ("utf-8",),
    **{(1, token): (str(token), f"0 to {VOCAB - 1}") for token in (-1, VOCAB)},
    **dict.fromkeys([("a",), (True,), 7, b"abc"], ("token ids",)),
}
CALLS = [
    *((PromptError, SPEAKING, DynaTree(), prompt, words) for prompt, words in PROMPTS.items()),
    (PromptError, PAIR, DynaTree(), "hello", ("tokenizer", "token ids")),
    (ContextExceededError, SHORT, DynaTree(), [1] * 1000, ("shorten the prompt",)),
    (ContextExceededError, SHORT, DynaTree(), [1] * 13, ("16", "max_new_tokens to 3")),
    *((NoDraftError, LONE, kind(), [1], (kind.__name__, "draft=")) for kind in (DynaTree, LinearSpeculation)),
    *((SettingsError, PAIR, wrong, [1], ("strategy",)) for wrong in (DynaTree, "DynaTree")),
    *((SettingsError, wrong, DynaTree(), [1], ("pair", "load_pair")) for wrong in ("mini",)),
]  # fmt: skip


@both_ways
@pytest.mark.parametrize(("error", "pair", "strategy", "prompt", "words"), CALLS)
def test_a_call_that_cannot_decode(way, error, pair, strategy, prompt, words):
    with refused(error, *words):
        way(pair, strategy, prompt, max_new_tokens=4)


def test_text_and_anything_that_holds_its_ids_are_the_same_prompt_and_stay_as_they_are():
    by_text = speclab.generate(SPEAKING, DynaTree(), "w1 w2 w3", max_new_tokens=6)
    assert by_text.text == "".join(f" w{token}" for token in by_text.token_ids)
    for prompt in ([1, 2, 3], np.array([1, 2, 3]), (1, 2, 3), range(1, 4)):
        assert (
            speclab.generate(SPEAKING, DynaTree(), prompt, max_new_tokens=6).token_ids
            == by_text.token_ids
        )
        assert list(prompt) == [1, 2, 3]


@pytest.fixture
def session():
    session = Session(SHORT, DynaTree(), [1, 2, 3], max_new_tokens=10)
    session.run()
    return session


@pytest.mark.parametrize("index", [-1, 99, "1", 1.0])
def test_going_where_nothing_is_decoded(session, index):
    for move in (session.goto, session.fork):
        with refused(SettingsError, str(index), str(len(session.steps))):
            move(index)
    assert session.cursor == len(session.steps)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_new_tokens": 3},
        {"max_new_tokens": True},
        {"temperature": math.nan},
        {"seed": 2**63},
        {"colour": "blue"},
        {"root": "\0\ud800"},
        {"low_confidence": 0.95},
        {"at": speclab.Goose()},
    ],
    ids=str,
)
def test_a_fork_that_cannot_be_leaves_the_session_as_it_was(session, changes):
    before = session.token_ids
    with refused(SettingsError, *(set(changes) - {"at"})):
        session.fork(**changes)
    assert (session.token_ids, session.strategy) == (before, DynaTree())


class _Writer(speclab.Strategy):
    """Writes into the text that it is shown."""

    def drafter(self, pair):
        return _WritingDrafter(self)


class _WritingDrafter(speclab.Drafter):
    def draft(self, context):
        context.tokens.append(5)
        return speclab.Draft(speclab.DraftTree.root(5))


def test_a_strategy_cannot_write_into_the_text():
    session = Session(PAIR, _Writer(), [1, 2, 3], max_new_tokens=4)
    before = session.token_ids
    with refused(SettingsError, "root"):
        session.step()
    assert session.token_ids == before
