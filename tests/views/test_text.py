"""Sentences, phases, tokens and the text: every token as text, whatever it holds."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.view_samples import (
    ANY_TEXTS,
    drafted_root,
    ended_inside,
    five_nodes,
    heap,
    odd_tokens,
    one_node,
    parse,
    steps,
    trace,
    words,
)

from speclab import views
from speclab.prompts import Message
from speclab.views.drawing import call
from speclab.views.static_html import snapshot


@pytest.mark.parametrize(
    ("step", "facts"),
    [
        (five_nodes(), ("4 drafted, 2 accepted, 1 bonus", "3 tokens")),
        (one_node(), ("nothing drafted", "1 token")),
        (drafted_root(accept=False), ("7 drafted, 0 accepted, 1 correction", "1 token")),
        (ended_inside(), ("5 drafted, 2 accepted", "the text ended")),
        (replace(five_nodes(), note="A near-tie"), ("4 drafted, 2 accepted", "A near-tie.")),
    ],
)
def test_one_sentence_per_iteration_and_per_position(step, facts):
    sentences = [call("positionSentence", step, at) for at in call("positions", step)]
    assert all(fact in sentences[-1] for fact in facts)
    assert len(set(sentences)) == len(sentences)


def test_a_position_tells_what_it_adds_and_decides():
    sentences = [
        call("positionSentence", five_nodes(), at) for at in call("positions", five_nodes())
    ]
    assert "level 2 of 2, 2 nodes added" in sentences[2]
    assert "after node 0 the target chose ' old', which is node 1: accepted" in sentences[5]


def test_a_tree_from_a_heap_is_drafted_node_by_node_behind_its_block():
    step = heap()
    at = [position for position in call("positions", step) if position["phase"] == "draft"]
    kinds = [call("kindsAt", step, position) for position in at]
    drafted = [[node for node, kind in each.items() if kind] for each in kinds]
    assert drafted == [
        ["0"],
        ["0", "1"],
        ["0", "1", "3"],
        ["0", "1", "2", "3"],
        ["0", "1", "2", "3", "4"],
    ]
    assert [len(call("secondLines", step, position)) for position in at] == [0, 1, 2, 3, 4]
    assert call("positionSentence", step, at[0]).count("' old' 60 %") == 2
    assert "node 3, number 2" in call("positionSentence", step, at[2])


def test_a_node_says_its_probabilities_its_verdict_and_what_the_target_chose():
    step = five_nodes()
    known = call("nodeSentence", step, 2)
    for fact in (
        "Node 2 ' miller', drafted with 30 %",
        "the target chose ' old' (61 %)",
        "stop probability 10 %",
    ):
        assert fact in known
    assert "rejected" not in call("nodeSentence", step, 2, {"phase": "draft", "level": None})
    assert "accepted" in call("nodeSentence", step, 1)
    assert "not reached" in call("nodeSentence", odd_tokens(), 22)
    assert "the root" in call("nodeSentence", step, 0)
    assert "confidence 0.60" in views.event_words(step.events[0])


@settings(max_examples=20)
@given(steps())
def test_positions_only_ever_add_and_nothing_is_judged_before_the_acceptance(step):
    open_kinds = {None, "drafted"}
    at = call("positions", step)
    seen = [[*call("kindsAt", step, position).values()] for position in at]
    for before, after in pairwise(seen):
        pairs = zip(before, after, strict=True)
        assert all(old == new for old, new in pairs if old not in open_kinds)
    for position, kinds in zip(at, seen, strict=True):
        early = position["phase"] in {"draft", "flatten", "verify"}
        assert not early or {*kinds} <= {*open_kinds, "root"}
    assert seen[-1][:-1] == [node.verdict for node in step.nodes]


def test_the_accepted_path_decision_by_decision():
    taken = call("decisions", five_nodes())
    found = [(each["node"], each["candidates"], each["winner"]) for each in taken]
    assert found == [(0, [1, 2], 1), (1, [3, 4], 3), (3, [], None)]
    assert [each["winner"] for each in call("decisions", ended_inside())] == [1, 3]
    assert call("decisions", drafted_root(accept=False))[0]["node"] == -1
    assert call("ownKind", five_nodes()) == "bonus"
    assert call("ownKind", replace(five_nodes(), accepted=(1,))) == "corrected"


@pytest.mark.parametrize(
    ("text", "visible"),
    [(" the", "␣the"), ("\n\n", "⏎⏎"), ("        ", "␣×8"), ("\u200b", "<U+200B>"), ("", "∅"), ("\u0301", "◌\u0301"),
     ("\x1b[31m", "<U+001B>[31m"), ("\u202eabc", "<U+202E>abc"), ("\t", "⇥"), ("\ud800", "<U+D800>")],
)  # fmt: skip
def test_display(text, visible):
    assert call("display", text) == visible


@given(st.text(max_size=30), st.integers(1, 20))
@example("\u2028<b>\x00", 4)
def test_nothing_invisible_is_left_and_clipping_keeps_its_columns(text, most):
    shown = call("display", text)
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}
    assert not any(unicodedata.category(char) in hidden for char in shown)
    assert call("columnsOf", call("clip", shown, most)) <= most
    assert not set(call("plotText", text)) & {"<", ">", "$"}


def test_tokens_without_a_text_per_cent_and_bytes():
    assert call("labels", [7, 0], {0: " city"}) == ["#7", "␣city"]
    assert [call("quoted", 7, {}), call("quoted", 0, {0: " city"})] == ["'#7'", "' city'"]
    assert call("quoted", 0, {0: "   "}) == "'␣␣␣'"
    shares = {0.934: "93 %", 0.0374: "3.7 %", 0.0002: "<0.1 %", 0.0: "0 %", 1.0: "100 %"}
    assert {share: call("percent", share) for share in shares} == shares
    bytes_of = ["Zo<0xC3>", "<0xAB>", "<0xF0><0x9F>", "<0x99>", "<0x82>!", "<0xE2>", " a", "<0xFF>"]
    assert call("joinedBytes", bytes_of) == ["Zo", "ë", "", "", "🙂!", "<0xE2>", " a", "<0xFF>"]


def test_every_generated_token_is_in_the_text_once_and_iterations_are_marked():
    run = trace()
    _, *parts = views.text(run).split('<span class="sl-mark"')
    for step, part in zip(run.steps, parts, strict=True):
        kept = re.sub("<s .*?</s>|<[^>]*>", "", f"<{part}", flags=re.DOTALL)
        new = "".join([run.texts[token] for token in step.committed])
        assert kept == f"{step.index + 1}+{len(step.committed)}{new}"
    assert len(views.text(run, 3)) < len(views.text(run))


@settings(max_examples=15)
@given(steps())
@example(odd_tokens())
def test_no_token_breaks_out_of_text_sentence_or_table(step):
    for node in range(len(step.tree)):
        assert not set(call("nodeSentence", step, node)) & {"\u202e", "\x00", "\u200b", "\x1b"}
    run = replace(trace(1), steps=(step,), texts=ANY_TEXTS)
    parse(views.text(run))
    assert words(snapshot(run, 1)).count("node") >= 1
    assert "alert" not in repr(views.text(trace(1)))


def test_a_correction_shows_what_was_rejected_and_what_a_chat_template_wrote_is_set_apart():
    corrected = views.text(replace(trace(1), steps=(drafted_root(accept=False),)))
    assert corrected.count("<s ") == 1
    long = replace(trace(1), prompt_ids=tuple(range(20)) * 30)
    assert "504 tokens" in words(views.text(long)), "folded"
    run = views.text(replace(trace(2), messages=(Message("user", "…", 4, 20),)))
    assert run.count('"sl-t sl-template"') == 14
    assert run.count('title="user"') == 16
