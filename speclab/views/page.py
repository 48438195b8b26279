"""A run as one HTML page: every iteration drawn beforehand, moved through by slider and keys; no kernel, no network.

The text and the metrics are on the page once. What differs between iterations is compressed, one block each, and
unpacked by the browser when it is shown, so that a page of hundreds of large trees stays small and opens at once.
"""

from __future__ import annotations

import gzip
import json
import os
from base64 import b64encode
from pathlib import Path

from speclab.files import write_whole
from speclab.trace.records import Trace
from speclab.views import beside, cache, drafts_page, explain, mask, metrics, residual, strategy, text, tree
from speclab.views.beside import Beside
from speclab.views.markup import tag
from speclab.views.page_parts import SCRIPT, STYLE
from speclab.views.summary import plural, summary
from speclab.views.summary import table as iterations_table
from speclab.views.text_style import STYLE as TEXT_STYLE
from speclab.views.tokens import escape


def said(trace: Trace, cursor: int) -> str:
    """The newest of `cursor` iterations in words."""
    return summary(trace.steps[cursor - 1]) if cursor else "Before the first iteration: the prompt alone."


def frame(trace: Trace, cursor: int, other: Beside | None = None) -> str:
    """What belongs to one iteration alone, as HTML: tree, mask, the run beside it, what the drafter knew and decided,
    the caches, and in words all that led to them.
    """
    if not cursor:
        return tag("p", "The draft tree, its mask and the caches of an iteration appear here.", class_="empty")
    step = trace.steps[cursor - 1]
    tables = (tree.table(step), explain.events_table(step), cache.table(step), metrics.table(trace, cursor))
    parts = (
        beside.run_brief(trace, other, cursor) if other else "",
        drafts_page.drafts_html(step, tooltips=False),
        residual.residual_html(step),
        strategy.strategy_html(trace, cursor),
    )
    return "".join((
        tag("div", tree.tree_svg(step), mask.mask_svg(step), class_="beside"),
        *(tag("div", part) for part in parts if part),
        tag("div", cache.cache_svg(step, prompt=len(trace.prompt_ids))),
        tag("details", tag("summary", "nodes, decisions and figures of this iteration, as tables"), *tables),
    ))  # fmt: skip


def page(trace: Trace, cursor: int = 0, name: str = "speclab", other: Beside | None = None) -> str:
    """The whole page, opened at `cursor`; `other`: a run to show beside every iteration."""
    count = len(trace.steps)
    frames = [frame(trace, i, other) for i in range(count + 1)]
    data = {
        "frames": [b64encode(gzip.compress(part.encode(), mtime=0)).decode() for part in frames],
        "said": [said(trace, i) for i in range(count + 1)],
    }
    whole = [tag("section", frames[cursor], id="frame"), tag("section", _text(trace, cursor))]
    if count:
        whole.append(tag("section", tag("h2", "The whole run"), metrics.metrics_svg(trace), id="run"))
        whole.append(tag("details", tag("summary", "iterations as a table"), iterations_table(trace)))
    facts = ", ".join(f"{key} {value}" for key, value in {**trace.settings, **trace.models}.items())
    packed = json.dumps(data).replace("<", "\\u003c")  # a text must not end the script
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}{TEXT_STYLE}</style></head>'
        f"<body>{_header(trace, cursor, name)}<main>{''.join(whole)}</main><footer>{escape(facts)}</footer>"
        f'<script type="application/json" id="data">{packed}</script><script>{SCRIPT}</script></body></html>'
    )


def export_html(
    trace: Trace, path: str | os.PathLike[str], cursor: int | None = None, other: Beside | None = None
) -> Path:
    """Writes the page, opened at `cursor` (the first iteration by default); returns the path.

    Args:
        other: a run to show beside this one, at the same iteration.

    Raises:
        TraceError: the folder is missing, read-only or full.
    """
    place = Path(path)
    opened = min(1, len(trace.steps)) if cursor is None else cursor
    return write_whole(place, page(trace, opened, place.stem, other).encode())


def _header(trace: Trace, cursor: int, name: str) -> str:
    count = len(trace.steps)
    slider = tag("input", id="at", type="range", min=0, max=count, value=cursor, aria_label="iteration")
    return tag(
        "header", tag("b", escape(name)), tag("button", "◀", data_by=-1, aria_label="one iteration back"), slider,
        tag("button", "▶", data_by=1, aria_label="one iteration on"),
        tag("span", f"{cursor} of {plural(count, 'iteration')}", id="place"),
        tag("span", escape(said(trace, cursor)), id="said", role="status", aria_live="polite"),
        tag("noscript", "Your browser runs no scripts, so this page shows one iteration alone."),
    )  # fmt: skip


def _text(trace: Trace, cursor: int) -> str:
    pieces = [
        tag("span", piece, data_after=i, hidden="" if i > cursor else None)
        for i, piece in enumerate(text.text_pieces(trace))
    ]
    body = tag("div", *pieces, class_="speclab-text-body", dir="auto", role="document", aria_label="the text so far")
    return tag("div", text.legend(trace), body, class_="speclab-text")
