"""HTML without scripts: the text of a run token by token, and an iteration for a saved notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape, unescape
from typing import TYPE_CHECKING, Any

from speclab.errors import SpeclabError
from speclab.trace.records import Step, Trace, trace_of
from speclab.views.drawing import call
from speclab.views.run_data import LOOKS, run_header, run_steps, style

if TYPE_CHECKING:
    from speclab.engine.session import Session

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


def text(trace: Trace | Session, cursor: int | None = None) -> Html:
    """The prompt and the text of `cursor` iterations as HTML, with the origin of each token."""
    trace = trace_of(trace)
    steps = run_steps(trace, cursor)
    prompt, *lists = call("textPieces", run_header(trace), steps)
    body = f'<span class="sl-p">{"".join(map(_token, prompt))}</span>'
    for number, (step, pieces) in enumerate(zip(steps, lists, strict=True), start=1):
        gained = len(step["committed"])
        body += f'<span class="sl-mark" data-iteration="{number}">{number}<b>+{gained}</b></span>'
        body += "".join(map(_token, pieces))
    known = LOOKS["nodes"]
    kinds = dict.fromkeys(piece["kind"] for pieces in lists for piece in pieces)
    legend = [f'<span class="sl-t sl-{kind}">{known[kind]["label"]}</span>' for kind in kinds]
    return Html(
        f'<style>{style()}</style><div class="speclab-text"><div class="sl-legend">'
        f'<span class="sl-t sl-first">first token</span> {" ".join(legend)}</div>'
        f'<div class="sl-body" dir="auto" role="document">{body}</div></div>'
    )


def _token(piece: Piece) -> str:
    """A token in the look of its kind; what was rejected is struck out."""
    tag = "s" if piece["kind"] == "rejected" else "span"
    title = escape(piece["title"])
    shown = escape(call("readable", piece["text"]))
    return f'<{tag} class="sl-t sl-{piece["kind"]}" title="{title}">{shown}</{tag}>'


def describe(trace: Trace | None, cursor: int) -> str:
    """One sentence on the current iteration, for output without pictures."""
    if trace is None or not 0 < cursor <= len(trace.steps):
        return "No iteration is shown yet: Step decodes the first."
    return _summary(trace.steps[cursor - 1])


def _summary(step: Step) -> str:
    try:
        sentence: str = call("summary", step)
    except SpeclabError:  # the engine of pictures is missing
        sentence = f"Iteration {step.index + 1}."
    return sentence


def iteration(step: Step) -> Html:
    """An iteration without its picture: its sentence, and its tree as a table."""
    return Html(f"<p>{escape(_summary(step))}</p>{_node_table(step)}")


def snapshot(trace: Trace | None, cursor: int) -> str:
    """The current iteration as static HTML: its sentence, the text so far and its tree as a table."""
    sentence = f"<p>{escape(describe(trace, cursor))}</p>"
    if trace is None or not 0 < cursor <= len(trace.steps):
        return sentence
    try:
        lists = call("textPieces", run_header(trace), run_steps(trace, cursor))
    except SpeclabError:
        return sentence
    written = ""
    for pieces in lists:
        for piece in pieces:
            if piece["kind"] != "rejected":
                written += piece["text"]
    readable = escape(call("readable", written))
    return f"{sentence}<pre>{readable}</pre>{_node_table(trace.steps[cursor - 1])}"


def _node_table(step: Step) -> str:
    """The nodes of a tree as a table; empty without the engine of pictures."""
    try:
        table = call("nodeRows", step)
    except SpeclabError:
        return ""
    body = _table_line("th", table["columns"])
    for row in table["data"]:
        body += _table_line("td", row)
    return f'<table class="speclab-table">{body}</table>'


def _table_line(tag: str, row: Sequence[object]) -> str:
    cells = [f"<{tag}>{escape(str(cell))}</{tag}>" for cell in row]
    return f"<tr>{''.join(cells)}</tr>"
