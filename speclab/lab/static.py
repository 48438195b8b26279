"""A frame without a kernel: words and static HTML for saved notebooks and exported pages."""

from __future__ import annotations

from speclab.analysis.compare import Comparison
from speclab.lab.state import Frame
from speclab.views.beside import kept_html
from speclab.views.cache import cache_svg
from speclab.views.drafts_page import drafts_html
from speclab.views.lossy import run_words, warning
from speclab.views.markup import tag
from speclab.views.mask import mask_svg
from speclab.views.metrics import metrics_svg
from speclab.views.residual import residual_html
from speclab.views.strategy import strategy_html
from speclab.views.summary import moment_summary, summary
from speclab.views.text import text_html
from speclab.views.tokens import escape
from speclab.views.tree import tree_svg
from speclab.views.walk import WHOLE


def plain(frame: Frame) -> str:
    """The frame in words."""
    step = frame.step
    if step is None:
        return "Before the first iteration: the prompt alone."
    return summary(step) if frame.moment == WHOLE else f"{summary(step)} {moment_summary(step, frame.moment)}"


def snapshot(frame: Frame, comparison: Comparison | None = None) -> str:
    """The frame as static HTML: what happened, tree and mask, what is kept beside them, trees for choice, residual law,
    text, what the drafter knew and decided, caches, metrics.

    `comparison`: of this run with its baselines, once measured.
    """
    step, beside = frame.step, "display:flex;flex-wrap:wrap;gap:8px 28px;align-items:flex-start"
    warned = run_words(frame.trace, frame.cursor)
    parts = [tag("p", tag("b", escape(plain(frame)))), tag("div", warning(warned)) if warned else ""]
    if step is not None:
        tree, mask = tree_svg(step, frame.selected, moment=frame.moment), mask_svg(step, frame.selected)
        parts.append(tag("div", tree, mask, style=beside))
        kept = kept_html(frame.trace, frame.cursor, frame.beside, frame.pinned)
        drawn = (kept, drafts_html(step), residual_html(step))
        parts += [tag("div", part) for part in drawn if part]
    parts.append(tag("div", text_html(frame.trace, frame.committed)))
    if step is not None:
        caches = cache_svg(step, frame.selected, prompt=len(frame.trace.prompt_ids), moment=frame.moment)
        strategy = strategy_html(frame.trace, frame.cursor, comparison)
        parts += [tag("div", strategy), tag("div", caches), tag("div", metrics_svg(frame.trace, frame.cursor))]
    return tag("div", *parts, class_="speclab-snapshot")
