"""HTML without scripts: the text of a run token by token, and an iteration for a saved notebook."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape, unescape
from typing import Any

from speclab.errors import SpeclabError
from speclab.trace.records import Trace
from speclab.views.drawing import call
from speclab.views.run_data import looks, run_header, run_steps, style

HEAD = TAIL = 48
"""Tokens of a long prompt before and after the gap."""
Piece = Mapping[str, Any]
"""A token of the text, as `textPieces` of `page/metrics.js` describes it."""


class Html(str):
    """HTML for a notebook, with a plain-text form."""

    __slots__ = ()

    def __repr__(self) -> str:
        words = re.sub(r"<style.*?</style>|<[^>]*>", " ", self, flags=re.DOTALL)
        return unescape(" ".join(words.split()))

    def _repr_html_(self) -> str:
        return str(self)


def text_html(trace: Trace, cursor: int | None = None) -> Html:
    """The prompt and the text of `cursor` iterations, with a legend of the kinds that occur."""
    steps = run_steps(trace, cursor)
    prompt, *lists = call("textPieces", run_header(trace), steps)
    body = _prompt(prompt)
    for number, (step, pieces) in enumerate(zip(steps, lists, strict=True), start=1):
        gained = len(step["committed"])
        body += f'<span class="sl-mark" data-iteration="{number}">{number}<b>+{gained}</b></span>'
        body += "".join(map(_token, pieces))
    generated = sum(len(step["committed"]) for step in steps) + 1
    sentence = f"{len(prompt) - 1} prompt tokens, then {generated} in {len(steps)} iterations"
    known = looks()["nodes"]
    kinds = dict.fromkeys(piece["kind"] for pieces in lists for piece in pieces)
    legend = [f'<span class="sl-t sl-{kind}">{known[kind]["label"]}</span>' for kind in kinds]
    return Html(
        f'<style>{style()}</style><div class="speclab-text"><div class="sl-legend">'
        f'<span class="sl-t sl-first">first token</span> {" ".join(legend)}</div>'
        f'<div class="sl-body" dir="auto" role="document" aria-label="{sentence}">{body}</div></div>'
    )


def _prompt(pieces: Sequence[Piece]) -> str:
    """The prompt, shortened in the middle if it is long, and the first token."""
    *prompt, first = map(_token, pieces)
    hidden = len(prompt) - HEAD - TAIL
    if hidden > 16:
        gap = f'<span class="sl-gap">… {hidden} tokens …</span>'
        prompt = [*prompt[:HEAD], gap, *prompt[-TAIL:]]
    return f'<span class="sl-p">{"".join(prompt)}</span>{first}'


def _token(piece: Piece) -> str:
    """A token in the look of its kind; what was rejected is struck out."""
    tag = "s" if piece["kind"] == "rejected" else "span"
    title = escape(piece["title"])
    text = escape(call("readable", piece["text"]))
    return f'<{tag} class="sl-t sl-{piece["kind"]}" title="{title}">{text}</{tag}>'


def summaries(trace: Trace) -> list[str]:
    """One sentence on each iteration; its number where the engine of pictures is missing."""
    try:
        return [call("summary", step) for step in run_steps(trace)]
    except SpeclabError:
        return [f"Iteration {step.index + 1}." for step in trace.steps]


def describe(trace: Trace | None, cursor: int) -> str:
    """One sentence on the current iteration, for output without pictures."""
    if trace is None or not 0 < cursor <= len(trace.steps):
        return "No iteration is shown yet: Step decodes the first."
    return summaries(replace(trace, steps=trace.steps[cursor - 1 : cursor]))[0]


def snapshot(trace: Trace | None, cursor: int) -> str:
    """The current iteration as static HTML: its sentence, the text so far and its tree as a table."""
    sentence = f"<p>{escape(describe(trace, cursor))}</p>"
    if trace is None or not 0 < cursor <= len(trace.steps):
        return sentence
    try:
        lists = call("textPieces", run_header(trace), run_steps(trace, cursor))
        rows = call("nodeRows", trace.steps[cursor - 1])
    except SpeclabError:
        return sentence
    pieces = [piece for pieces in lists for piece in pieces]
    text = "".join([piece["text"] for piece in pieces if piece["kind"] != "rejected"])
    readable = escape(call("readable", text))
    return f"{sentence}<pre>{readable}</pre>{_table(cursor, **rows)}"


def _table(number: int, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    head = "".join([f'<th scope="col">{escape(cell)}</th>' for cell in columns])
    lines = ["".join([f"<td>{escape(str(cell))}</td>" for cell in row]) for row in rows]
    body = "".join([f"<tr>{line}</tr>" for line in lines])
    return (
        f'<table class="speclab-table"><caption>Draft tree of iteration {number}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
