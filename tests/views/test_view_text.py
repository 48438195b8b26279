"""The text: every token in order with where it came from, shown so that nothing invisible is left."""

from __future__ import annotations

import html
import unicodedata
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from view_samples import (
    ANY_TEXTS,
    ODD,
    drafted_root,
    ended_inside,
    five_nodes,
    odd_tokens,
    one_node,
    parse,
    steps,
    trace,
)

from speclab.prompts import Message
from speclab.trace.records import Trace
from speclab.views import figures, markup, token_text

BYS = ["verdict", "source", "iteration", "probability"]


def _run(*run, prompt=(1, 2, 3)) -> Trace:
    return replace(trace(1), steps=tuple(run), prompt_ids=prompt, texts=ANY_TEXTS)


@settings(max_examples=20)
@given(st.lists(steps(max_nodes=12), max_size=4), st.sampled_from(BYS))
def test_every_generated_token_is_there_in_order(run, by):
    made = _run(*run)
    spans = [e for e in parse(token_text.text_html(made, by=by)).iter("span") if e.get("title")]
    spans = [span for span in spans if "sl-t" in span.get("class", "").split()]
    assert [item.token for item in token_text.shown_tokens(made)] == list(made.token_ids())
    for span, token in zip(spans, made.token_ids(), strict=True):
        assert f"id {token} " in span.get("title")


@pytest.mark.parametrize("by", BYS)
def test_one_more_step_rewrites_the_last_chunk_only_and_tokens_cannot_break_out(by):
    made = trace(30)
    closed = [token_text.closed_chunks(made, cursor, by) for cursor in range(31)]
    keys = [token_text.closed_key(made, cursor, by) for cursor in range(31)]
    for (before, after), (key, next_key) in zip(pairwise(closed), pairwise(keys), strict=True):
        assert after[: len(before)] == before
        assert len(after) - len(before) <= 1
        assert (key == next_key) == (before == after)
    assert len(closed[-1]) == 1 + 30 // token_text.CHUNK
    for cursor in range(31):
        chunks = [*closed[cursor], token_text.tail_chunk(made, cursor, by)]
        assert sum(chunk.count('class="sl-t ') for chunk in chunks) == len(made.token_ids(cursor))
    odd = replace(_run(odd_tokens(), prompt=tuple(100 + i for i in range(len(ODD)))), texts=odd_tokens().texts)
    parse(token_text.text_html(odd, by=by, unfolded=True) + token_text.table(odd) + token_text.legend(made, by))


def test_where_each_token_came_from_and_what_a_correction_replaced():
    shown = token_text.shown_tokens(_run(five_nodes(), drafted_root(False), ended_inside(), one_node()))
    kinds = ["first", "accepted", "accepted", "bonus", "corrected", "accepted", "accepted", "bonus"]
    assert [item.kind for item in shown] == kinds
    assert [item.iteration for item in shown] == [0, 3, 3, 3, 1, 1, 1, 1]
    assert [len(item.rejected) for item in shown] == [0, 1, 1, 0, 1, 1, 1, 0]
    assert [item.source for item in shown][1:4] == ["draft", "draft", "target"]
    assert shown[3].prob == 0.61
    assert "chosen over &#x27;␣miller&#x27;" in token_text.text_html(replace(trace(1), steps=(five_nodes(),)))
    for fact in ("3 prompt tokens", "4 generated in 1 iteration", "2 accepted, 1 bonus, 0 corrected"):
        assert fact in token_text.summary(_run(five_nodes()))


def test_iterations_are_marked_long_prompts_folded_and_line_breaks_made():
    root = parse(token_text.text_html(trace(12)))
    marks = [e for e in root.iter("span") if e.get("class") == "sl-mark" and e.get("title")]
    gained = [(step.index + 1, f"+{len(step.committed)}") for step in trace(12).steps]
    assert [(int(mark.text), mark[0].text) for mark in marks] == gained
    assert "… 404 tokens …" in token_text.prompt_html(trace(1, prompt=500))
    assert "tokens …" not in token_text.prompt_html(trace(1, prompt=112))
    made = replace(_run(ended_inside()), texts={0: "\n", 1: "a\n\n b"}, prompt_ids=(0, 1, 77))
    assert "⏎\na⏎\n⏎\n b#77" in token_text.prompt_html(made), "a token without text has its id"
    assert "&lt;|endoftext|&gt;" in token_text.text_html(made), "a step's own texts are used too"


def test_what_a_chat_template_wrote_is_set_apart_in_text_table_and_words():
    texts = {0: "<|im_start|>", 1: "user", 2: "\n", 3: "Why", 4: " not", 5: "<|im_end|>"}
    made = replace(trace(1), prompt_ids=(0, 1, 2, 3, 4, 2, 5), texts={**trace(1).texts, **texts})
    talk = replace(made, messages=(Message("<b>", "Why not\n", 3, 6),))
    spans = [(e.get("class"), e.get("title"), e.text) for e in parse(token_text.prompt_html(talk)).iter("span")][1:]
    written = "written by the chat template"
    assert spans == [("sl-tpl", written, "<|im_start|>user⏎"), ("sl-role", "<b> message", "Why not⏎\n"),
                     ("sl-tpl", written, "<|im_end|>")]  # fmt: skip
    assert "7 prompt tokens (4 of them the chat template's)" in token_text.summary(talk)
    assert ("chat template" in token_text.legend(talk), "chat template" in token_text.legend(made)) == (True, False)
    rows = [[cell.text for cell in row] for row in parse(token_text.table(talk)).iter("tr")]
    assert rows[1] == ["0", "3", written, "<|im_start|>user⏎"]
    assert token_text.closed_key(talk) != token_text.closed_key(made)
    long = replace(trace(1, prompt=500), messages=(Message("system", "", 3, 5), Message("user", "", 20, 490)))
    assert "… 404 tokens …" in token_text.prompt_html(long)
    assert token_text.prompt_html(long).count("user message") == 2, "before and after the fold"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" the", "␣the"), ("\n", "⏎"), ("\t\tif", "⇥⇥if"), ("\r\n", "␍⏎"), ("        ", "␣×8"), ("", "∅"),
        ("<0xE2>", "<0xE2>"), ("\u202eevil", "<U+202E>evil"), ("\ud800", "<U+D800>"), ("\u0301", "◌\u0301"),
        (" 日本", "␣日本"), ("🙂", "🙂"), ("\u00a0", "<U+00A0>"),
    ],
)  # fmt: skip
def test_display(text, shown):
    assert markup.display(text) == shown


@settings(max_examples=60)
@given(st.text(max_size=40), st.integers(2, 20))
def test_nothing_invisible_is_left_escaping_can_be_undone_and_clipping_keeps_its_columns(text, columns):
    shown = markup.display(text)
    assert shown
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
    for escaped in (markup.escape(text), figures.escape(text)):
        assert html.unescape(escaped) == text
        assert not {"<", ">"} & set(escaped)
    assert "$" not in figures.escape(text)
    assert not {'"', "'"} & set(markup.escape(text))
    clipped = markup.clip(shown, columns)
    assert markup.width(clipped) <= columns
    assert clipped == shown or (clipped[-1] == "…" and shown.startswith(clipped[:-1]))


def test_labels_know_tokens_without_text():
    assert [markup.label(7, {}), markup.label(7, {7: " the"}), markup.quoted(7, {7: " the"})] == [
        "#7",
        "␣the",
        "'␣the'",
    ]
    assert markup.label(7, {7: "internationalisation"}, 8) == "interna…"
    assert markup.width("日本a\u0301") == 5
