"""What a person may get wrong, in one table: the error, words of its one sentence, and the call.

Refusals that depend on a file, a model or a state are tested beside what refuses them.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.every_strategy import PROBS, PROMPT, VOCAB, finished, pair_of, session_of
from support.refusals import refused
from support.table_runner import table_pair
from support.view_samples import five_nodes, trace

import speclab
from speclab import DraftTree, DynaTree, TreeEdit, views
from speclab.drafters import from_str
from speclab.errors import (
    ContextExceededError,
    FinishedError,
    NoDraftError,
    NotRecordedError,
    PromptError,
    SettingsError,
    SpeclabError,
)
from speclab.features.replay import curves
from speclab.lab.prediction import Prediction
from speclab.trace.edit import HAND, MOST

PLAIN = speclab.Autoregressive()
LONE = table_pair(PROBS, None, VOCAB)
HEADED = replace(pair_of(), draft=None)
SHORT = pair_of(16)
ASKED = "How many tokens does this pass give?"


def decoding(prompt=PROMPT, strategy=PLAIN, pair=HEADED):
    return partial(speclab.Session, pair, strategy, prompt, max_new_tokens=4)


def moved(name, *given, **named):
    """A call of a method of a decoded session, which changes nothing."""

    def call():
        session = finished(max_new_tokens=10)
        before = session.trace, session.strategy, session.cursor
        try:
            getattr(session, name)(*given, **named)
        finally:
            assert (session.trace, session.strategy, session.cursor) == before

    return call


def by_hand(*tokens, parents=None, last=0.0):
    """A tree below the newest token of a text; the session stays as it was."""

    def call():
        session = session_of(speclab.ByHand(), pair_of(60))
        n = len(tokens)
        try:
            session.verify(
                DraftTree.of(
                    [session.token_ids[-1], *tokens],
                    parents or [-1, *[0] * n],
                    [*[0.0] * n, last],
                    HAND,
                )
            )
        finally:
            assert not session.steps

    return call


def ahead():
    session = session_of(speclab.ByHand())
    session.step()
    session.back()
    session.verify(DraftTree.root(1))


def edited(method, *given):
    return lambda: getattr(TreeEdit(DraftTree.root(3)).add(0, 5), method)(*given)


def drawn(name, shown, *given, **named):
    return lambda: getattr(views, name)(shown() if callable(shown) else shown, *given, **named)


ROWS = [
    # prompts, models and strategies
    (PromptError, "prompt is empty", *map(decoding, ["", "  ", (), range(0)])),
    (PromptError, "utf-8", decoding(b"w1 \xff w2".decode(errors="surrogateescape"))),  # as from a terminal
    (PromptError, f"0 to {VOCAB - 1}", decoding((1, -1)), decoding((1, VOCAB))),
    (PromptError, "token ids", *map(decoding, [("a",), (True,), 7, b"abc"]), decoding("hello", pair=LONE)),
    (ContextExceededError, "shorten the prompt", decoding([1] * 1000, pair=SHORT)),
    (ContextExceededError, "set max_new_tokens to 3", decoding([1] * 13, pair=SHORT)),
    (SettingsError, "strategy", *[decoding(strategy=wrong) for wrong in (DynaTree, "DynaTree")]),
    (SettingsError, "load_pair", decoding(pair="mini")),
    *[(NoDraftError, f"{kind.__name__} needs", decoding(strategy=kind(), pair=LONE))
      for kind in (DynaTree, speclab.LinearSpeculation, speclab.Graft, speclab.DraftHead, speclab.DualDraft)],
    (NoDraftError, "set head to 0.", decoding(strategy=speclab.DraftHead(head=3))),
    (NoDraftError, "set head to 0 or 1 or 2.",
     decoding(strategy=DynaTree(head=7), pair=replace(HEADED, heads=HEADED.heads * 3))),
    (NoDraftError, "choose PromptLookup", decoding(strategy=speclab.SequoiaTree(source="draft"), pair=LONE)),
    (NoDraftError, "the draft model and draft head 0", decoding(strategy=speclab.DualDraft(first=None, second=0))),
    (SettingsError, "two different drafts", decoding(strategy=speclab.DualDraft(first=0, second=0))),
    (SettingsError, "such as 0.6, 0.2",
     *[partial(speclab.SequoiaTree, rank_acceptance=rates) for rates in ("0.5, x", "2", "-0.1", [0.5, 1.5])]),
    # sessions
    *[(SettingsError, str(index), moved("goto", index), moved("fork", index)) for index in (-1, 99, "1", 1.0)],
    *[(SettingsError, *changes, moved("fork", **changes)) for changes in (
        {"max_new_tokens": 3}, {"max_new_tokens": True}, {"temperature": math.nan}, {"seed": 2**63},
        {"colour": "blue"}, {"root": "\0\ud800"}, {"low_confidence": 0.95},
    )],
    (SettingsError, "strategy=", moved("fork", speclab.Goose())),
    (SettingsError, "max_new_tokens", moved("fork", max_new_token=3)),
    (SettingsError, "Did you mean", moved("run", until="acepted < 2")),
    # trees by hand
    (SettingsError, "no node", *[edited("add", node, 7) for node in (2, -1, True, "1")]),
    (SettingsError, "token id", *[edited("add", 0, token) for token in (-1, "the", 1.5, 1 << 31)]),
    (SettingsError, "root", edited("prune", 0)),
    (SettingsError, "Expected a DraftTree", lambda: TreeEdit("x")),
    (SettingsError, "an iteration", lambda: TreeEdit.of(3)),
    (NotRecordedError, "root alone", lambda: TreeEdit.of(session_of(DynaTree(root="drafted")).step())),
    (SettingsError, "outside the vocabulary", by_hand(VOCAB)),
    (SettingsError, "context", by_hand(*[1] * 50, parents=range(-1, 50))),
    (SettingsError, "one pass", by_hand(*[1] * MOST)),
    (SettingsError, "log-probability", by_hand(1, last=np.nan)),
    (SettingsError, "DraftTree", lambda: session_of(speclab.ByHand()).verify("tree")),
    (SettingsError, "ahead", ahead),
    (SettingsError, "ByHand", moved("verify", DraftTree.root(1))),
    (FinishedError, "ended", lambda: finished(speclab.ByHand()).verify(DraftTree.root(1))),
    # what a record tells
    (SettingsError, "strategies by name",
     *[partial(speclab.compare, HEADED, wrong, PROMPT) for wrong in ([DynaTree()], DynaTree(), None)]),
    (SettingsError, "load_trace", *[partial(speclab.nodes, wrong) for wrong in (["run.json"], "run.json", None)]),
    (SettingsError, "Expected", partial(speclab.what_if, 3, DynaTree()),
     lambda: speclab.what_if(five_nodes(), DynaTree)),
    (SettingsError, "speclab.Session", lambda: speclab.replay(finished().trace, PLAIN)),
    (SettingsError, "from 0", lambda: speclab.link(finished().trace, first=99)),
    (SettingsError, "a link as text", partial(speclab.open_link, 5)),
    (SettingsError, "DynaTree?", partial(from_str, "DynaTreee")),
    (SettingsError, "no setting 'nonsense'", partial(curves.span, DynaTree(), "nonsense")),
    # pictures
    (NotRecordedError, "nothing was drafted", drawn("marginals", lambda: {"plain": [finished(PLAIN)]})),
    (NotRecordedError, "draft", drawn("ranks", partial(finished, PLAIN))),
    (SettingsError, "got", drawn("ranks", ["run"])),
    (SpeclabError, "", drawn("tree", five_nodes, 9), drawn("tree", five_nodes, phase="learn"),
     drawn("mask", five_nodes, phase="verify", level=1), drawn("tree", five_nodes, phase="draft", level=-1),
     drawn("tree", lambda: views.graph(five_nodes()), 9), drawn("tree", five_nodes, theme="blue"),
     drawn("residual", five_nodes), drawn("metrics", lambda: replace(trace(), steps=())),
     drawn("cache", lambda: replace(five_nodes(), caches=())), drawn("text", five_nodes),
     *[drawn(name, wrong) for name in ("tree", "mask", "cache", "graph") for wrong in (None, trace)],
     drawn("node", None), drawn("node", trace),
     drawn("timeline", five_nodes), drawn("marginals", {}), drawn("marginals", trace)),
    # questions
    (SettingsError, "", lambda: Prediction(""), lambda: Prediction(ASKED, (1, 1)),
     lambda: Prediction(ASKED).predict("many"), lambda: Prediction(ASKED, (1, 2)).predict(3),
     lambda: Prediction(ASKED).reveal("many"), lambda: Prediction(ASKED, ("tree", "chain")).reveal("trees")),
]  # fmt: skip
REFUSED = [(error, word, call) for error, word, *calls in ROWS for call in calls]


@pytest.mark.parametrize(("error", "word", "call"), REFUSED)
def test_one_sentence_names_the_cause_and_nothing_decoded_is_lost(error, word, call):
    with refused(error, word):
        call()
