"""A frame without a kernel: static HTML for saved notebooks."""

from __future__ import annotations

from speclab.lab.state import Frame
from speclab.trace import Trace
from speclab.views.cache import cache_svg
from speclab.views.markup import tag
from speclab.views.mask import mask_svg
from speclab.views.metrics import metrics_svg
from speclab.views.summary import summary
from speclab.views.text import text_html
from speclab.views.tokens import escape
from speclab.views.tree import tree_svg


def plain(frame: Frame) -> str:
    """The frame in words."""
    step = frame.step
    return summary(step) if step else "Before the first iteration."


def snapshot(frame: Frame) -> str:
    """The frame as static HTML: what happened, tree, mask, text, caches, metrics."""
    step = frame.step
    parts = [tag("p", tag("b", escape(plain(frame)))), text_html(frame.trace, frame.cursor)]
    if step is not None:
        tree, mask = tree_svg(step, frame.selected, moment=frame.moment), mask_svg(step, frame.selected)
        parts += [
            tree,
            mask,
            cache_svg(step, frame.selected, prompt=len(frame.trace.prompt_ids)),
            _figures(frame.trace, frame.cursor),
        ]
    return tag("div", *(tag("div", part) for part in parts), class_="speclab-snapshot")


def _figures(trace: Trace, cursor: int) -> str:
    return metrics_svg(trace, cursor)
