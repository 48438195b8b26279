from __future__ import annotations

import html
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.views import markup


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" the", "␣the"), ("\n", "⏎"), ("\t\tif", "⇥⇥if"), ("\r\n", "␍⏎"), ("        ", "␣×8"), ("", "∅"),
        ("<0xE2>", "<0xE2>"), ("\u200b", "<U+200B>"), ("\u202eevil", "<U+202E>evil"), ("\x00", "<U+0000>"),
        ("\ud800", "<U+D800>"), ("\u0301", "◌\u0301"), ("é", "é"), (" 日本", "␣日本"), ("🙂", "🙂"),
        ("\u00a0", "<U+00A0>"), ("\u2028", "<U+2028>"),
    ],
)  # fmt: skip
def test_display(text, shown):
    assert markup.display(text) == shown


@settings(max_examples=30)
@given(st.text())
def test_nothing_invisible_is_left_and_xml_can_hold_it(text):
    shown = markup.display(text)
    assert shown
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
    shown.encode("utf-8")


@settings(max_examples=30)
@given(st.text())
def test_escaping_can_be_undone_and_leaves_no_markup(text):
    for escaped in (markup.escape(text), markup.plotly_text(text)):
        assert html.unescape(escaped) == text
        assert not {"<", ">"} & set(escaped)
    assert "$" not in markup.plotly_text(text)
    assert '"' not in markup.escape(text)
    assert "'" not in markup.escape(text)


@settings(max_examples=30)
@given(st.text(max_size=40), st.integers(2, 20))
def test_clip_keeps_within_its_columns(text, columns):
    shown = markup.display(text)
    clipped = markup.clip(shown, columns)
    assert markup.width(clipped) <= columns
    assert clipped == shown or (clipped[-1] == "…" and shown.startswith(clipped[:-1]))


def test_labels_know_tokens_without_text():
    assert markup.label(7, {}) == "#7"
    assert markup.label(7, {7: " the"}) == "␣the"
    assert markup.quoted(7, {7: " the"}) == "'␣the'"
    assert markup.label(7, {7: "internationalisation"}, 8) == "interna…"
    assert markup.width("日本a\u0301") == 5
