"""Sentences, phases, tokens and the text: every token as text, whatever it holds."""

from __future__ import annotations

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
from speclab.views.phases import Position, decisions, fresh, node_kinds, own_kind, positions
from speclab.views.sentences import node_sentence, position_sentence, summary
from speclab.views.text_html import text_html
from speclab.views.tokens import clip, display, label, percent, plot_text, quoted, table, width
from speclab.views.tree_picture import notes


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (five_nodes(), ("4 drafted, 2 accepted, 1 bonus", "3 tokens")),
        (one_node(), ("nothing drafted", "1 token")),
        (drafted_root(accept=False), ("7 drafted, 0 accepted, 1 correction", "1 token")),
        (ended_inside(), ("5 drafted, 2 accepted", "the text ended")),
        (
            replace(five_nodes(), note="A near-tie was broken"),
            ("4 drafted, 2 accepted", "A near-tie was broken."),
        ),
    ],
)
def test_one_sentence_per_iteration(step, words):
    assert all(word in summary(step) for word in words)


def test_one_sentence_per_position():
    step = five_nodes()
    sentences = [position_sentence(step, position) for position in positions(step)]
    assert len(set(sentences)) == len(sentences)
    assert "level 2 of 2, 2 nodes added" in sentences[2]
    assert "after node 0 the target chose ' old', which is node 1: accepted" in sentences[5]
    assert sentences[-1] == summary(step)


def test_a_tree_from_a_heap_is_drafted_node_by_node_behind_its_block():
    step = heap()
    drafted = [position for position in positions(step) if position.phase == "draft"]
    kinds = [node_kinds(step, position) for position in drafted]
    assert [[node for node, kind in enumerate(each) if kind] for each in kinds] == [
        [0], [0, 1], [0, 1, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4]
    ]  # fmt: skip
    assert [fresh(step, position) for position in drafted] == [set(), {1}, {3}, {2}, {4}]
    assert [sorted(notes(step, position)) for position in drafted] == [
        [],
        [1],
        [1, 3],
        [1, 2, 3],
        [1, 2, 3, 4],
    ]
    sentences = [position_sentence(step, position) for position in drafted]
    assert sentences[0].count("' old' 60 %") == 2
    assert "node 3, number 2" in sentences[2]


def test_a_node_says_its_probabilities_its_verdict_and_what_the_target_chose():
    step = five_nodes()
    known = node_sentence(step, 2)
    assert "Node 2 ' miller', drafted with 30 %" in known
    assert "rejected, the target chose ' old' (61 %)" in known
    assert "stop probability 10 %" in known
    assert "rejected" not in node_sentence(step, 2, Position("draft"))
    assert "accepted" in node_sentence(step, 1)
    assert "not reached" in node_sentence(odd_tokens(), 22)
    assert "the root" in node_sentence(step, 0)


@settings(max_examples=20)
@given(steps())
def test_positions_only_ever_add_and_nothing_is_judged_before_the_acceptance(step):
    seen = [node_kinds(step, position) for position in positions(step)]
    for before, after in pairwise(seen):
        known = [
            (old, new)
            for old, new in zip(before, after, strict=True)
            if old not in {None, "drafted"}
        ]
        assert all(old == new for old, new in known)
    for position, kinds in zip(positions(step), seen, strict=True):
        assert position.reached("accept") or {*kinds} <= {None, "drafted", "root"}
    assert seen[-1] == [node.verdict for node in step.nodes]


def test_the_accepted_path_decision_by_decision():
    taken = [(each.node, each.candidates, each.winner) for each in decisions(five_nodes())]
    assert taken == [(0, (1, 2), 1), (1, (3, 4), 3), (3, (), None)]
    assert [each.winner for each in decisions(ended_inside())] == [1, 3]
    assert decisions(drafted_root(accept=False))[0].node == -1
    assert own_kind(five_nodes()) == "bonus"
    assert own_kind(replace(five_nodes(), accepted=(1,))) == "corrected"


@pytest.mark.parametrize(
    ("text", "visible"),
    [(" the", "␣the"), ("\n\n", "⏎⏎"), ("        ", "␣×8"), ("\u200b", "<U+200B>"), ("", "∅"), ("\u0301", "◌\u0301"),
     ("\x1b[31m", "<U+001B>[31m"), ("\u202eabc", "<U+202E>abc"), ("\t", "⇥")],
)  # fmt: skip
def test_display(text, visible):
    assert display(text) == visible


@given(st.text(max_size=30), st.integers(1, 20))
@example("\u2028<b>\x00", 4)
def test_nothing_invisible_is_left_and_clipping_keeps_its_columns(text, most):
    shown = display(text)
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}
    assert not any(unicodedata.category(char) in hidden for char in shown)
    assert width(clip(shown, most)) <= most
    assert not set(plot_text(text)) & {"<", ">", "$"}


def test_tokens_without_a_text_and_per_cent():
    assert (label(7, {}), quoted(7, {}), quoted(0, {0: " city"})) == ("#7", "'#7'", "' city'")
    assert quoted(0, {0: "   "}) == "'␣␣␣'"
    assert [percent(each) for each in (0.934, 0.0374, 0.0002, 0.0, 1.0)] == [
        "93 %",
        "3.7 %",
        "<0.1 %",
        "0 %",
        "100 %",
    ]


def test_every_generated_token_is_in_the_text_once_and_iterations_are_marked():
    run = trace()
    shown = words(text_html(run))
    for step in run.steps:
        mark = f"{step.index + 1}+{len(step.committed)}"
        piece = shown[shown.rindex(mark) :] if shown.count(mark) == 1 else shown
        for token in step.committed:
            read = display(run.texts[token]).replace("␣", " ").replace("⏎", "⏎\n")
            assert read in piece
            piece = piece[piece.index(read) + len(read) :]
    assert len(words(text_html(run, 3))) < len(shown)


@settings(max_examples=15)
@given(steps())
@example(odd_tokens())
def test_no_token_breaks_out_of_text_sentence_or_table(step):
    parse(
        table("tokens", ("a",), [(label(token, step.texts),) for token in step.tree.token.tolist()])
    )
    for node in range(len(step.tree)):
        assert not set("".join(node_sentence(step, node))) & {"\u202e", "\x00", "\u200b", "\x1b"}
    run = replace(trace(1), steps=(step,), texts=ANY_TEXTS)
    assert "<script" not in views.text(run)
    assert "alert" not in repr(views.text(trace(1)))


def test_a_correction_shows_what_was_rejected_and_what_a_chat_template_wrote_is_set_apart():
    corrected = text_html(replace(trace(1), steps=(drafted_root(accept=False),)))
    assert "<s>" in corrected
    assert "×1" in words(corrected)
    long = replace(trace(1), prompt_ids=tuple(range(20)) * 30)
    assert "504 tokens" in words(text_html(long)), "folded"
    run = replace(trace(2), messages=(Message("user", "…", 4, 20),))
    piece = text_html(run)
    assert piece.count("sl-template") == 14
    assert piece.count("user message") == 16
