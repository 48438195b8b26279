from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import TEXTS, steps
from hypothesis import given, settings
from hypothesis import strategies as st
from picture import HTML, parse
from view_samples import EOS, ODD, drafted_root, ended_inside, five_nodes, odd_tokens, one_node, trace

from speclab.trace.records import Trace
from speclab.views import token_text

BYS = ["verdict", "source", "iteration", "probability"]


def _run(*run, prompt=(1, 2, 3)) -> Trace:
    return replace(trace(1), steps=tuple(run), prompt_ids=prompt, texts=TEXTS)


@settings(max_examples=30)
@given(st.lists(steps(max_nodes=12), max_size=4), st.sampled_from(BYS))
def test_every_generated_token_is_there_in_order(run, by):
    made = _run(*run)
    root = parse(token_text.text_html(made, by=by), HTML)
    spans = [e for e in root.iter("span") if "sl-t" in e.get("class", "").split() and e.get("title")]
    assert len(spans) == len(made.token_ids())
    assert [item.token for item in token_text.shown_tokens(made)] == list(made.token_ids())
    for span, token in zip(spans, made.token_ids(), strict=True):
        assert f"id {token} " in span.get("title")


def test_tokens_cannot_break_out():
    made = _run(odd_tokens(), prompt=tuple(100 + i for i in range(len(ODD))))
    made = replace(made, texts=odd_tokens().texts)
    for by in BYS:
        page = token_text.text_html(made, by=by, unfolded=True)
        assert "<script" not in page
        assert "</svg>" not in page
        parse(page, HTML)
    parse(token_text.table(made), HTML)


@pytest.mark.parametrize("by", BYS)
def test_one_more_step_rewrites_the_last_chunk_only(by):
    made = trace(60)
    for cursor in range(len(made.steps)):
        before, after = token_text.text_chunks(made, cursor, by), token_text.text_chunks(made, cursor + 1, by)
        assert before[: len(before) - 1] == after[: len(before) - 1]
        assert len(after) - len(before) <= 1
    assert len(after) == 1 + -(-len(made.token_ids()) // token_text.CHUNK)


def test_where_each_token_came_from():
    shown = token_text.shown_tokens(_run(five_nodes(), drafted_root(False), ended_inside(), one_node()))
    kinds = ["first", "accepted", "accepted", "bonus", "corrected", "accepted", "accepted", "bonus"]
    assert [item.kind for item in shown] == kinds
    assert [item.iteration for item in shown] == [0, 3, 3, 3, 1, 1, 1, 1]
    assert [len(item.rejected) for item in shown] == [0, 1, 1, 0, 1, 1, 1, 0]
    assert [item.source for item in shown][1:4] == ["draft", "draft", "target"]
    assert shown[3].prob == 0.61


def test_only_a_correction_shows_what_it_replaced():
    page = token_text.text_html(_run(five_nodes(), drafted_root(False)))
    assert page.count('class="sl-x" tabindex') == 1
    assert "chosen over &#x27;␣miller&#x27;" in token_text.text_html(replace(trace(1), steps=(five_nodes(),)))
    assert 'class="speclab-text sl-open"' in token_text.text_html(_run(five_nodes()), unfolded=True)


def test_iterations_are_marked_with_what_they_gained():
    root = parse(token_text.text_html(trace(12)), HTML)
    marks = [e for e in root.iter("span") if e.get("class") == "sl-mark" and e.get("title")]
    assert [(int(m.text), m[0].text) for m in marks] == [
        (step.index + 1, f"+{len(step.committed)}") for step in trace(12).steps
    ]


def test_a_long_prompt_is_folded():
    folded = token_text.text_chunks(trace(1, prompt=500))[0]
    assert "… 404 tokens …" in folded
    assert "tokens …" not in token_text.text_chunks(trace(1, prompt=112))[0]


def test_line_breaks_are_shown_and_made_and_tokens_without_text_have_their_id():
    made = replace(_run(ended_inside()), texts={0: "\n", 1: "a\n\n b"}, prompt_ids=(0, 1, 77))
    assert "⏎\na⏎\n⏎\n b#77" in token_text.text_chunks(made)[0]
    assert "&lt;|endoftext|&gt;" in token_text.text_html(made), "a step's own texts are used too"
    assert ended_inside().committed[-1] == EOS


def test_summary_and_legend():
    assert token_text.summary(_run(five_nodes())) == (
        "Text: 3 prompt tokens, then 4 generated in 1 iteration: 1 first, 2 accepted, 1 bonus, 0 corrected."
    )
    assert token_text.summary(trace(5), 0).startswith("Text: 30 prompt tokens, then 1 generated in 0 iterations")
    for by in BYS:
        parse(token_text.legend(trace(3), by), HTML)
