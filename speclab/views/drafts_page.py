"""The trees that stood for choice, as HTML: sentences, figures, then the trees on one scale; a merged tree as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import exp
from typing import TYPE_CHECKING

from speclab.trace.records import Step
from speclab.views import drafts, glyphs, markup
from speclab.views.palette import LOOKS, SANS, Theme, ThemeName, css
from speclab.views.small_tree import Small, columns, small_svg
from speclab.views.summary import plural
from speclab.views.tokens import escape, label, quoted
from speclab.views.values import bar, cards, said

if TYPE_CHECKING:
    from speclab.analysis.routing import Regret

_MEANINGS = {
    "accepted": "the text goes on with it",
    "rejected": "the target chose another token",
    "not reached": "the walk does not come here",
    "drafted": "unknown: not verified",
    "bonus": "the target's own token, past the tree's end",
    "corrected": "the target's own token, in place of the candidates",
}
_PROPOSERS = ("M-{r} 0L{r} -{r}L{r} {r}Z", "M{r} 0L-{r} -{r}L-{r} {r}Z", "M-{r} 0L0 -{r}L{r} 0L0 {r}Z")
"""Of the first, of the second, of both: the two triangles put together."""


def drafts_html(step: Step, regret: Regret | None = None, theme: ThemeName = "light", *, tooltips: bool = True) -> str:
    """Everything about the choice of an iteration; empty where one tree alone was drafted.

    `tooltips`: whether every node tells its figures; on a page of many iterations they would weigh most.
    """
    if not step.proposals:
        return ""
    words = [said("Choice", drafts.choice_words(step))]
    if drafts.merged(step):
        words.append(said("Merged", drafts.sources_words(step)))
    else:
        names = {True: "Verified", False: "Not verified" if regret is None else "The other"}
        places = sorted(range(len(step.proposals)), key=lambda place: not step.proposals[place].chosen)
        words += [said(names[step.proposals[i].chosen], drafts.outcome_words(step, i, regret)) for i in places]
    if regret is not None:
        words.append(said("On request", drafts.regret_words(step, regret)))
    colors = css(theme)
    body = _union(step, colors) if drafts.merged(step) else _side_by_side(step, regret, colors, tooltips=tooltips)
    return markup.tag("div", *words, figures_table(step, regret), body, class_="speclab-drafts-view")


def figures_table(step: Step, regret: Regret | None = None) -> str:
    """One row a tree: its size, mean confidence, margin, and the drafted tokens that the text goes on with."""
    largest = max(one.confidence for one in step.proposals) or 1.0
    other_score = any(abs(one.score - one.confidence) > 1e-9 for one in step.proposals)
    rows = []
    for place, one in enumerate(step.proposals):
        read, mean = drafts.reading(step, place, regret), drafts.figure(one.confidence)
        known = f"{len(read.path)}{' or more' if 'drafted' in read.looks else ''}"
        score = (drafts.figure(one.score),) if other_score else ()
        rows.append((
            one.name, "yes" if one.chosen else "no", len(one.tree) - 1, int(one.tree.depth.max()), mean,
            bar(one.confidence / largest, LOOKS["accepted"].color, 80), *score, _signed(drafts.margin(step, place)),
            known,
        ))  # fmt: skip
    compared = ("compared by",) if other_score else ()
    head = ("tree", "verified", "nodes", "levels", "mean confidence", "", *compared, "margin", "accepted")
    return markup.table(f"Trees of iteration {step.index + 1}", head, rows)


def _side_by_side(step: Step, regret: Regret | None, colors: Theme, *, tooltips: bool) -> str:
    smalls = [
        Small(one.tree, read, _hovers(step, i, read.looks) if tooltips else ())
        for i, one in enumerate(step.proposals)
        for read in [drafts.reading(step, i, regret)]
    ]
    xs = columns(smalls, step.texts)
    panels = [_panel(step, i, small, xs, colors, regret) for i, small in enumerate(smalls)]
    looks = {look for small in smalls for look in (*small.reading.looks, *(small.reading.own or ())[1:])}
    entries = [
        (glyphs.shape(look, 0, 0, 4.5, 0.9, colors), meaning, 14.0)
        for look, meaning in _MEANINGS.items()
        if look in looks
    ]
    return cards(*panels) + _legend(entries, colors)


def _panel(step: Step, place: int, small: Small, xs: Sequence[float], colors: Theme, regret: Regret | None) -> str:
    one = step.proposals[place]
    verdict = "verified" if one.chosen else "verified on request" if regret else "not verified"
    heading = markup.tag("b", escape(f"{one.name}: {verdict}"))
    mean, margin = drafts.figure(one.confidence), _signed(drafts.margin(step, place))
    figures = f"{plural(len(one.tree) - 1, 'node')}, mean confidence {mean}, margin {margin}"
    line = markup.tag("div", escape(figures), style=f"color:{colors.muted}")
    outcome = drafts.outcome_words(step, place, regret)
    svg = small_svg(small, xs, step.texts, f"{one.name}, {verdict}. {outcome}", colors)
    edge = f"3px solid {LOOKS['accepted'].color}" if one.chosen else f"1px dashed {colors.line}"
    style = f"font:13px/1.5 {SANS};border:{edge};border-radius:6px;padding:6px 10px"
    return markup.tag("div", heading, line, svg, style=style)


def _signed(margin: float) -> str:
    return f"{'−' if margin < 0 else '+'}{drafts.figure(abs(margin))}"


def _hovers(step: Step, place: int, looks: Sequence[str]) -> list[str]:
    tree = step.proposals[place].tree
    probs, paths = tree.log_prob, tree.path_log_prob
    return [
        f"{quoted(int(token), step.texts)} · node {node} · draft {_exp(probs[node])} · path {_exp(paths[node])}\n"
        f"{_MEANINGS.get(looks[node], 'the root, the newest committed token')}"
        for node, token in enumerate(tree.token)
    ]


def _exp(log_prob: float) -> str:
    return f"{exp(log_prob):.3f}"


def _union(step: Step, colors: Theme) -> str:
    read = drafts.verified(step)
    symbol = partial(_proposer, step, colors)
    hovers = [
        f"{quoted(node.token, step.texts)} · from {step.tree.source[node.index]}\n{node.reason}" for node in step.nodes
    ]
    small = Small(step.tree, read, hovers, symbol)
    svg = small_svg(small, columns([small], step.texts), step.texts, drafts.sources_words(step), colors)
    names = [*(one.name for one in step.proposals), "both"]
    entries = [
        (_triangle(shape, 0, 0, 4.5, f"fill:none;stroke:{colors.ink}"), f"proposed by {name}", 14.0)
        for shape, name in zip(_PROPOSERS, names, strict=True)
    ]
    filled = _triangle(_PROPOSERS[-1], 0, 0, 4.5, f"fill:{LOOKS['accepted'].color};stroke:{colors.ink}")
    entries.append((filled, "filled: accepted", 14.0))
    return cards(svg) + _legend(entries, colors)


def _proposer(step: Step, colors: Theme, node: int, x: float, y: float, r: float) -> str:
    """A node of a merged tree: its shape says who proposed it, filled where it was accepted."""
    if not node:
        return glyphs.shape("root", x, y, r, 0.9, colors)
    names = [one.name for one in step.proposals]
    source = step.tree.source[node]
    shape = _PROPOSERS[names.index(source)] if source in names else _PROPOSERS[-1]
    taken = node in step.accepted
    fill, edge = (LOOKS["accepted"].color, colors.ink) if taken else (colors.paper, colors.muted)
    return _triangle(shape, x, y, r + 1.2, f"fill:{fill};stroke:{edge}")


def _triangle(shape: str, x: float, y: float, r: float, style: str) -> str:
    place = f"translate({markup.number(x)} {markup.number(y)})"
    return markup.tag("path", d=shape.format(r=markup.number(r)), transform=place, style=style)


def _legend(entries: Sequence[tuple[str, str, float]], colors: Theme) -> str:
    content, height = glyphs.legend(entries, 4.0, 14.0, 640.0)
    said = "Symbols: " + "; ".join(entry[1] for entry in entries)
    inner = markup.tag("g", content, style=f"fill:{colors.muted}")
    return markup.svg(660.0, height + 6, said, colors, [inner])


def nodes_table(step: Step) -> str:
    """Every node of every tree that stood for choice, as an HTML table; nothing where there was but one."""
    if not step.proposals:
        return ""
    rows = [
        (one.name, node, label(int(one.tree.token[node]), step.texts), int(one.tree.depth[node]),
         int(one.tree.parent[node]), _exp(one.tree.log_prob[node]), _exp(one.tree.path_log_prob[node]),
         _MEANINGS.get(look, "the root"))
        for place, one in enumerate(step.proposals)
        for node, look in enumerate(drafts.reading(step, place).looks)
    ]  # fmt: skip
    head = ("tree", "node", "token", "depth", "parent", "draft p", "path p", "what is known of it")
    return markup.table(f"Trees that stood for choice in iteration {step.index + 1}", head, rows)
