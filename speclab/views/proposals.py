"""The proposed trees: side by side on one scale, with what decided between them.

Of a tree that was not verified only so much is known as the committed text tells: a token that the text goes on with
would have been accepted there as well. What lies beyond is called unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from math import exp

from speclab.analysis.routing import Part, Regret, Routing, statistics
from speclab.trace.records import Proposal, Step, Trace
from speclab.tree import DraftTree
from speclab.views import markup, playback
from speclab.views.explain import plural
from speclab.views.markup import bar, cards, escape, label, labelled, quoted
from speclab.views.metrics_chart import LEFT, WIDE, Axis, iterations_axis, nice, small
from speclab.views.palette import LOOKS, SANS, SOURCE_COLORS, Theme, css
from speclab.views.tree_small import Reading, Small, columns, small_svg


def merged(step: Step) -> bool:
    """Whether more than one proposal was verified, as one tree."""
    return sum([one.chosen for one in step.proposals]) > 1


def margin(step: Step, place: int) -> float:
    """How far a proposal's score lies above the best of the others; below it: negative."""
    others = [one.score for i, one in enumerate(step.proposals) if i != place]
    return step.proposals[place].score - max(others, default=0.0)


def reading(step: Step, place: int, regret: Regret | None = None) -> Reading:
    """What came of a proposal; of one that was not verified, what the committed tokens tell of it.

    `regret`: both trees verified, which leaves nothing unknown.
    """
    proposal = step.proposals[place]
    if proposal.chosen and not merged(step):
        return verified(step) if len(proposal.tree) == len(step.tree) else _in_part(step, proposal.tree)
    if regret is not None:
        return verified(regret.steps[place])
    tree = proposal.tree
    if step.counts.lossy:  # what such a rule takes of another tree, the text does not tell
        return Reading(("root", *("drafted" for _ in range(len(tree) - 1))), (), None)
    path = tree.follow(step.committed)
    beyond = step.committed[len(path) :]
    return Reading(_looks(tree, step.committed), path, (beyond[0], _own(tree, path)) if beyond else None)


def verified(step: Step) -> Reading:
    """What came of a tree that was verified."""
    own = None if step.bonus is None else (step.bonus, playback.own_kind(step))
    return Reading(tuple([node.verdict for node in step.nodes]), step.accepted, own)


def _in_part(step: Step, tree: DraftTree) -> Reading:
    """What came of a tree of which the target verified the nodes that were worth it."""
    place = [0]
    for node in range(1, len(step.tree)):
        children = tree.children[place[int(step.tree.parent[node])]]
        place.append(next(child for child in children if tree.token[child] == step.tree.token[node]))
    looks = ["drafted"] * len(tree)
    for node, at in enumerate(place):
        looks[at] = step.nodes[node].verdict
    return Reading(tuple(looks), tuple([place[node] for node in step.accepted]), verified(step).own)


def _own(tree: DraftTree, path: tuple[int, ...]) -> str:
    return "corrected" if tree.children[path[-1] if path else 0] else "bonus"


def _looks(tree: DraftTree, committed: tuple[int, ...]) -> tuple[str, ...]:
    looks = ["root"]
    for node in range(1, len(tree)):
        above, depth = looks[int(tree.parent[node])], int(tree.depth[node])
        if above in {"root", "accepted"} and depth <= len(committed):
            looks.append("accepted" if tree.token[node] == committed[depth - 1] else "rejected")
        else:
            looks.append("drafted" if above in {"root", "accepted", "drafted"} else "not reached")
    return tuple(looks)


def choice_words(step: Step) -> str:
    """Which trees there were, and which was verified, and why."""
    trees = [f"{one.name} with {_size(one)}, mean confidence {_figures(one)}" for one in step.proposals]
    root = quoted(int(step.tree.token[0]), step.texts)
    words = f"{'Two' if len(trees) == 2 else len(trees)} trees from {root}: {'; '.join(trees)}."
    if merged(step):
        return f"{words} They were verified as one, of {plural(len(step.tree) - 1, 'node')}."
    place = next(i for i, one in enumerate(step.proposals) if one.chosen)
    name, ahead = step.proposals[place].name, margin(step, place)
    why = f"by a margin of {figure(ahead)}" if ahead else "for of two equal trees the first is"
    return f"{words} {name} was verified, {why}."


def figure(value: float) -> str:
    """Three decimals, of a small one four: means of large trees are small."""
    return f"{value:.{3 if abs(value) >= 0.1 else 4}f}"


def _figures(one: Proposal) -> str:
    score = "" if abs(one.score - one.confidence) < 1e-9 else f" (compared by {figure(one.score)})"
    return f"{figure(one.confidence)}{score}"


def _size(one: Proposal) -> str:
    return plural(len(one.tree) - 1, "node")


def outcome_words(step: Step, place: int, regret: Regret | None = None) -> str:
    """What a proposal had accepted, or would have had; what is not known is called so."""
    proposal, read = step.proposals[place], reading(step, place, regret)
    name, run = proposal.name, _run(step, proposal.tree, read)
    if proposal.chosen or regret is not None:
        would = "had" if proposal.chosen and not merged(step) else "has"
        return f"{name} {would} {len(read.path)} accepted{run}.{_then(step, proposal.tree, read)}"
    if step.counts.lossy:
        return f"What typical acceptance would have taken of {name} is unknown without verifying it."
    unknown = read.looks.count("drafted")
    more = len(read.path) - len(step.accepted)
    gap = f"{abs(more)} {'more' if more > 0 else 'fewer'}" if more else "as many"
    least = "at least " if unknown else ""
    words = f"{name} would have had {least}{len(read.path)} accepted{run}: {gap}.{_then(step, proposal.tree, read)}"
    if unknown:
        words += f" What the target makes of the {plural(unknown, 'node')} beyond is unknown without verifying."
    return words


def _run(step: Step, tree: DraftTree, read: Reading) -> str:
    text = "".join([label(int(tree.token[node]), step.texts) for node in read.path])
    return f" ('{text}')" if read.path else ""


def _then(step: Step, tree: DraftTree, read: Reading) -> str:
    if read.own is None:
        return ""
    token, last = read.own[0], read.path[-1] if read.path else 0
    held = {int(tree.token[child]) for child in tree.children[last]}
    why = ", which it does not hold" if held and token not in held else ""
    return f" Then the target chose {quoted(token, step.texts)}{why}."


def sources_words(step: Step) -> str:
    """Of a merged tree: whose its nodes are, and whose the accepted ones."""
    whose = Counter(step.tree.source[1:])
    nodes = ", ".join([f"{count} of {_whose(step, name)}" for name, count in whose.items()])
    runs = [
        f"{plural(len(list(run)), 'token')} of {_whose(step, name)}"
        for name, run in groupby(step.tree.source[node] for node in step.accepted)
    ]
    taken = f"The accepted path took {', then '.join(runs)}." if runs else "No drafted token was accepted."
    return f"{plural(len(step.tree) - 1, 'node')}: {nodes}. {taken}"


def _whose(step: Step, name: str) -> str:
    return f"{name} alone" if any(one.name == name for one in step.proposals) else name


def regret_words(step: Step, regret: Regret) -> str:
    """What verifying both trees came to."""
    counts = zip(regret.names, regret.accepted, strict=True)
    each = " and ".join([f"{name} has {count} accepted" for name, count in counts])
    if merged(step):
        return f"Verified alone, {each}; as one tree they had {len(step.accepted)}."
    lost = plural(regret.tokens, "token") if regret.tokens else "nothing"
    return f"Both verified, {each}: the choice lost {lost}."


def summary(step: Step) -> str:
    """The choice and what came of it, in sentences; empty where there was none."""
    if not step.proposals:
        return ""
    if merged(step):
        return f"{choice_words(step)} {sources_words(step)}"
    return " ".join([choice_words(step), *(outcome_words(step, place) for place in range(len(step.proposals)))])


_MEANINGS = {
    "accepted": "the text goes on with it",
    "rejected": "the target chose another token",
    "not reached": "the accept path does not reach it",
    "drafted": "unknown: not verified",
    "bonus": "the target's own token, past the tree's end",
    "corrected": "the target's own token, in place of the candidates",
}
_PROPOSERS = ("M-{r} 0L{r} -{r}L{r} {r}Z", "M{r} 0L-{r} -{r}L-{r} {r}Z", "M-{r} 0L0 -{r}L{r} 0L0 {r}Z")
"""Of the first, of the second, of both: the two triangles put together."""


def proposals_html(
    step: Step,
    regret: Regret | None = None,
    brief: bool = False,
    trace: Trace | None = None,
    cursor: int | None = None,
) -> str:
    """As `drafts_html`, and how the choices of the run so far came out; `regret` may be of another iteration.

    `brief`: on a page of many iterations: no tooltips, and nothing of the run.
    """
    if not step.proposals and not brief:
        note = "One tree was drafted here. Where two are proposed (DualDraft), both are shown."
        return markup.tag("div", note, class_="sl-empty")
    found = regret if regret is not None and regret.steps[0].index == step.index else None
    trees = drafts_html(step, found, tooltips=not brief)
    return trees if brief or trace is None else trees + routing_html(trace, cursor)


def drafts_html(step: Step, regret: Regret | None = None, *, tooltips: bool = True) -> str:
    """Everything about the choice of an iteration; empty where one tree alone was drafted.

    `tooltips`: whether every node tells its figures; on a page of many iterations they would weigh most.
    """
    if not step.proposals:
        return ""
    words = [labelled("Choice", choice_words(step))]
    if merged(step):
        words.append(labelled("Merged", sources_words(step)))
    else:
        names = {True: "Verified", False: "Not verified" if regret is None else "The other"}
        places = sorted(range(len(step.proposals)), key=lambda place: not step.proposals[place].chosen)
        words += [labelled(names[step.proposals[i].chosen], outcome_words(step, i, regret)) for i in places]
    if regret is not None:
        words.append(labelled("On request", regret_words(step, regret)))
    colors = css()
    body = _union(step, colors) if merged(step) else _side_by_side(step, regret, colors, tooltips=tooltips)
    return markup.tag("div", *words, figures_table(step, regret), body, class_="speclab-drafts-view")


def figures_table(step: Step, regret: Regret | None = None) -> str:
    """One row per tree: its size, mean confidence, margin, and the drafted tokens that the text goes on with."""
    largest = max([one.confidence for one in step.proposals]) or 1.0
    other_score = any(abs(one.score - one.confidence) > 1e-9 for one in step.proposals)
    rows = []
    for place, one in enumerate(step.proposals):
        read, mean = reading(step, place, regret), figure(one.confidence)
        known = f"{len(read.path)}{' or more' if 'drafted' in read.looks else ''}"
        score = (figure(one.score),) if other_score else ()
        rows.append((
            one.name, "yes" if one.chosen else "no", len(one.tree) - 1, int(one.tree.depth.max()), mean,
            bar(one.confidence / largest, LOOKS["accepted"].color, 80), *score, _signed(margin(step, place)),
            known,
        ))  # fmt: skip
    compared = ("compared by",) if other_score else ()
    head = ("tree", "verified", "nodes", "levels", "mean confidence", "", *compared, "margin", "accepted")
    return markup.table(f"Trees of iteration {step.index + 1}", head, rows)


def _side_by_side(step: Step, regret: Regret | None, colors: Theme, *, tooltips: bool) -> str:
    smalls = [
        Small(one.tree, read, _hovers(step, i, read.looks) if tooltips else ())
        for i, one in enumerate(step.proposals)
        for read in [reading(step, i, regret)]
    ]
    xs = columns(smalls, step.texts)
    panels = [_panel(step, i, small, xs, colors, regret) for i, small in enumerate(smalls)]
    looks = {look for small in smalls for look in (*small.reading.looks, *(small.reading.own or ())[1:])}
    entries = [
        (markup.shape(look, 0, 0, 4.5, 0.9, colors), meaning, 14.0)
        for look, meaning in _MEANINGS.items()
        if look in looks
    ]
    return cards(*panels) + _legend(entries, colors)


def _panel(step: Step, place: int, small: Small, xs: Sequence[float], colors: Theme, regret: Regret | None) -> str:
    one = step.proposals[place]
    verdict = "verified" if one.chosen else "verified on request" if regret else "not verified"
    heading = markup.tag("b", escape(f"{one.name}: {verdict}"))
    mean, ahead = figure(one.confidence), _signed(margin(step, place))
    figures = f"{plural(len(one.tree) - 1, 'node')}, mean confidence {mean}, margin {ahead}"
    line = markup.tag("div", escape(figures), style=f"color:{colors.muted}")
    outcome = outcome_words(step, place, regret)
    svg = small_svg(small, xs, step.texts, f"{one.name}, {verdict}. {outcome}", colors)
    edge = f"3px solid {LOOKS['accepted'].color}" if one.chosen else f"1px dashed {colors.line}"
    style = f"font:13px/1.5 {SANS};border:{edge};border-radius:6px;padding:6px 10px"
    return markup.tag("div", heading, line, svg, style=style)


def _signed(margin: float) -> str:
    return f"{'−' if margin < 0 else '+'}{figure(abs(margin))}"


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
    read = verified(step)
    symbol = partial(_proposer, step, colors)
    hovers = [
        f"{quoted(node.token, step.texts)} · from {step.tree.source[node.index]}\n{node.reason}" for node in step.nodes
    ]
    small = Small(step.tree, read, hovers, symbol)
    svg = small_svg(small, columns([small], step.texts), step.texts, sources_words(step), colors)
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
        return markup.shape("root", x, y, r, 0.9, colors)
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
    content, height = markup.legend(tuple(entries), 4.0, 14.0, 640.0)
    words = "Symbols: " + "; ".join([entry[1] for entry in entries])
    inner = markup.tag("g", content, style=f"fill:{colors.muted}")
    return markup.svg(660.0, height + 6, words, colors, [inner])


def nodes_table(step: Step) -> str:
    """Every node of every proposed tree, as an HTML table; nothing where there was but one."""
    if not step.proposals:
        return ""
    rows = [
        (one.name, node, label(int(one.tree.token[node]), step.texts), int(one.tree.depth[node]),
         int(one.tree.parent[node]), _exp(one.tree.log_prob[node]), _exp(one.tree.path_log_prob[node]),
         _MEANINGS.get(look, "the root"))
        for place, one in enumerate(step.proposals)
        for node, look in enumerate(reading(step, place).looks)
    ]  # fmt: skip
    head = ("tree", "node", "token", "depth", "parent", "draft p", "path p", "what is known of it")
    return markup.table(f"Trees proposed in iteration {step.index + 1}", head, rows)


MOST, LEAST, HIGH = 130, 12, 34.0
"""Iterations drawn at most (the newest) and the room kept at least; pixels above and below the line."""


def routing_sentence(trace: Trace, cursor: int | None = None) -> str:
    """One sentence, such as: Routing over 12 iterations: code 7, prose 5; mean margin 0.081."""
    found = statistics(trace, cursor)
    if found is None:
        return "Routing: no iteration had two trees."
    chosen = ", ".join([f"{part.name} {part.chosen}" for part in found.parts])
    return f"Routing over {plural(found.iterations, 'iteration')}: {chosen}; mean margin {figure(found.margin)}."


def routing_html(trace: Trace, cursor: int | None = None) -> str:
    """Margins over the iterations, and one row per tree; nothing where no iteration had two trees."""
    found = statistics(trace, cursor)
    if found is None:
        return ""
    return markup.tag("div", margins_svg(trace, cursor), routing_table(found), class_="speclab-routes")


def routing_table(found: Routing) -> str:
    """How often each was chosen, what its choice gave, and whether its confidence keeps its word."""
    rows = (_row(part, found) for part in found.parts)
    head = (
        "tree", "chosen", "share", "", "tokens per iteration when chosen", "mean confidence",
        "share of its nodes the text followed", "expected tokens", "followed",
    )  # fmt: skip
    return markup.table(f"Routing over {plural(found.iterations, 'iteration')} with two trees", head, rows)


def _row(part: Part, found: Routing) -> tuple[object, ...]:
    share = part.chosen / found.iterations
    got = f"{part.committed / part.chosen:.2f}" if part.chosen else "–"
    return (
        part.name, part.chosen, f"{share:.0%}", bar(share, LOOKS["accepted"].color, 80), got, figure(part.confidence),
        figure(part.share), f"{part.expected:.2f}", f"{part.followed:.2f}",
    )  # fmt: skip


def margins(steps: Sequence[Step]) -> list[float | None]:
    """For each iteration the first tree's score less the second's; None where there were not two."""
    return [step.proposals[0].score - step.proposals[1].score if len(step.proposals) == 2 else None for step in steps]


def margins_svg(trace: Trace, cursor: int | None = None) -> str:
    """One bar per iteration: up where the first tree scored higher, down where the second did."""
    colors, steps = css(), trace.steps[:cursor]
    shown = steps[-MOST:]
    axis = Axis(steps, shown, max(LEAST, min(len(trace.steps), MOST)), colors)
    found = margins(shown)
    newest = next((step for step in reversed(shown) if len(step.proposals) == 2), None)
    if newest is None:
        text = markup.text("no iteration had two trees", 12, 24, style=f"fill:{colors.muted}")
        return markup.svg(LEFT + WIDE, 40, routing_sentence(trace, cursor), colors, [text])
    top = nice(max([abs(each) for each in found if each is not None]))
    middle, unit = 22 + HIGH, HIGH / top
    up = [(i, middle - each * unit, each * unit) for i, each in enumerate(found) if each is not None and each >= 0]
    down = [(i, middle, -each * unit) for i, each in enumerate(found) if each is not None and each < 0]
    first, second = (one.name for one in newest.proposals)
    verb = "scores higher" if merged(newest) else "chosen"
    parts = [
        small(f"margin, ▲ up: {first} {verb}", LEFT, 14, colors),
        small(f"▼ down: {second} {verb}", LEFT, middle + HIGH + 12, colors),
        axis.bars(up, SOURCE_COLORS[0]),
        axis.bars(down, SOURCE_COLORS[1]),
        *(
            small(f"{each:g}", LEFT - 6, middle + sign * HIGH + 4, colors, text_anchor="end")
            for each, sign in ((top, -1), (0, 0), (top, 1))
        ),
        markup.tag("path", d=f"M{LEFT:g} {markup.number(middle)}h{WIDE:g}", style=f"stroke:{colors.muted}"),
        iterations_axis(axis, middle + HIGH + 14),
    ]
    return markup.svg(LEFT + WIDE + 12, middle + HIGH + 40, routing_sentence(trace, cursor), colors, parts)
