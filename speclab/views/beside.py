"""Two iterations side by side: their difference in words, then both trees on one scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speclab.trace.records import Step, Trace
from speclab.views import explain
from speclab.views.difference import SAME, runs_words, steps_words
from speclab.views.drafts import verified
from speclab.views.markup import tag
from speclab.views.palette import SANS, ThemeName, css
from speclab.views.small_tree import Small, columns, small_svg
from speclab.views.summary import summary
from speclab.views.tokens import escape
from speclab.views.values import cards, said


@dataclass(frozen=True, slots=True)
class Beside:
    """A run kept beside the one shown, to follow its cursor. `number`: of the fork; `name`: what it is called."""

    number: int
    name: str
    trace: Trace


def kept_html(trace: Trace, cursor: int, other: Beside | None, pinned: Step | None, theme: ThemeName = "light") -> str:
    """Whatever is kept beside the iteration at `cursor`: a run, an iteration, both; empty where nothing is."""
    of_run = run_html(trace, other, cursor, theme) if other is not None else ""
    step = trace.steps[cursor - 1] if cursor else None
    return of_run + (step_html(step, pinned, theme) if pinned is not None else "")


def run_html(trace: Trace, other: Beside, cursor: int, theme: ThemeName = "light") -> str:
    """The iteration at `cursor` of both runs."""
    words = runs_words(trace, other.trace, cursor)
    steps = [("This run", trace.steps[cursor - 1])] if cursor else []
    steps += [(other.name, step) for step in other.trace.steps[max(cursor - 1, 0) : cursor]]
    return _page(f"Beside {other.name}", words, steps, theme)


def run_brief(trace: Trace, other: Beside, cursor: int, theme: ThemeName = "light") -> str:
    """As `run_html`, for a page that says everything of this run besides: no trees where they are the same."""
    words = runs_words(trace, other.trace, cursor)
    both = cursor and cursor <= len(other.trace.steps) and SAME not in words
    runs = [("This run", trace), (other.name, other.trace)] if both else []
    steps = [(name, run.steps[cursor - 1]) for name, run in runs]
    return _page(f"Beside {other.name}", words, steps, theme, hovers=lambda _: ())


def step_html(step: Step | None, pinned: Step, theme: ThemeName = "light") -> str:
    """The iteration shown and the pinned one; the pinned one alone where they are the same."""
    if step is None or step is pinned:
        return _page("Pinned", (), [("Pinned", pinned)], theme)
    return _page("Beside the pinned iteration", steps_words(step, pinned), [("Shown", step), ("Pinned", pinned)], theme)


def _hovers(step: Step) -> Sequence[str]:
    return ["\n".join(explain.hover(step, node)) for node in range(len(step.tree))]


def _page(
    label: str,
    words: tuple[str, ...],
    steps: list[tuple[str, Step]],
    theme: ThemeName,
    hovers: Callable[[Step], Sequence[str]] = _hovers,
) -> str:
    colors = css(theme)
    smalls = [Small(step.tree, verified(step), hovers(step)) for _, step in steps]
    texts = {token: text for _, step in steps for token, text in step.texts.items()}
    xs = columns(smalls, texts) if smalls else ()
    panels = []
    for (name, step), small in zip(steps, smalls, strict=True):
        heading = tag("div", tag("b", escape(f"{name}. ")), escape(summary(step)))
        svg = small_svg(small, xs, step.texts, f"{name}. {summary(step)}", colors)
        panels.append(tag("div", heading, svg, style=f"font:13px/1.5 {SANS}"))
    return tag("div", said(label, " ".join(words)) if words else "", cards(*panels), class_="speclab-beside-view")
