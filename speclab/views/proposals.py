"""The proposed trees: side by side on one scale, with what decided between them.

Of a tree that was not verified only so much is known as the committed text tells: a token that the text goes on with
would have been accepted there as well. What lies beyond is called unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import exp

from speclab.analysis.routing import Regret, Routing, statistics
from speclab.trace.records import Proposal, Step, Trace
from speclab.tree import DraftTree
from speclab.views import markup, playback
from speclab.views.draft_tree import small_tree_specs
from speclab.views.explain import plural
from speclab.views.figures import INK, PAPER, Drawing, Spec, abreast, escape, lines, note, spec
from speclab.views.markup import bar, label, labelled, quoted
from speclab.views.networks import graph, tree_graph
from speclab.views.palette import LOOKS, SOURCE_COLORS

NEWEST = 120
"""Iterations whose margins are drawn at most."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of a tree, or would have come of it.

    `looks`: for each node a key of `LOOKS`; "drafted" where the target was not asked. `path`: the nodes that the text
    follows, the root not among them. `own`: the target's token after the path, as (token, key of `LOOKS`); None where
    it is not known, or where the text ended.
    """

    looks: tuple[str, ...]
    path: tuple[int, ...]
    own: tuple[int, str] | None


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
    tree, alone = step.proposals[place].tree, step.proposals[place].chosen and not merged(step)
    if alone:
        return verified(step) if len(tree) == len(step.tree) else _in_part(step, tree)
    if regret is not None:
        return verified(regret.steps[place])
    if step.counts.lossy:  # what such a rule takes of another tree, the text does not tell
        return Reading(("root", *["drafted"] * (len(tree) - 1)), (), None)
    path, looks = tree.follow(step.committed), ["root"]
    for parent, depth, token in zip(
        *(column[1:].tolist() for column in (tree.parent, tree.depth, tree.token)), strict=True
    ):
        above = looks[parent]
        if above in {"root", "accepted"} and depth <= len(step.committed):
            looks.append("accepted" if token == step.committed[depth - 1] else "rejected")
        else:
            looks.append("drafted" if above in {"root", "accepted", "drafted"} else "not reached")
    kind = "corrected" if tree.children[path[-1] if path else 0] else "bonus"
    return Reading(tuple(looks), path, (step.committed[len(path)], kind) if len(path) < len(step.committed) else None)


def verified(step: Step) -> Reading:
    """What came of a tree that was verified."""
    own = None if step.bonus is None else (step.bonus, playback.own_kind(step))
    return Reading(tuple([node.verdict for node in step.nodes]), step.accepted, own)


def _in_part(step: Step, tree: DraftTree) -> Reading:
    """What came of a tree of which the target verified the nodes that were worth it."""
    paths = [step.tree.token[list(step.tree.path(node))[1:]].tolist() for node in range(len(step.tree))]
    place = [(0, *tree.follow(path))[-1] for path in paths]
    looks = ["drafted"] * len(tree)
    for node, at in enumerate(place):
        looks[at] = step.nodes[node].verdict
    return Reading(tuple(looks), tuple([place[node] for node in step.accepted]), verified(step).own)


def choice_words(step: Step) -> str:
    """Which trees there were, and which was verified, and why."""
    sizes = [plural(len(one.tree) - 1, "node") for one in step.proposals]
    trees = [
        f"{one.name} with {size}, mean confidence {_figures(one)}"
        for one, size in zip(step.proposals, sizes, strict=True)
    ]
    root = quoted(int(step.tree.token[0]), step.texts)
    words = f"{'Two' if len(trees) == 2 else len(trees)} trees from {root}: {'; '.join(trees)}."
    if merged(step):
        return f"{words} They were verified as one, of {plural(len(step.tree) - 1, 'node')}."
    place = next(i for i, one in enumerate(step.proposals) if one.chosen)
    why = f"by a margin of {figure(ahead)}" if (ahead := margin(step, place)) else "as the first of two equal trees"
    return f"{words} {step.proposals[place].name} was verified, {why}."


def figure(value: float) -> str:
    """Three decimals, of a small one four: means of large trees are small."""
    return f"{value:.{3 if abs(value) >= 0.1 else 4}f}"


def _figures(one: Proposal) -> str:
    score = "" if abs(one.score - one.confidence) < 1e-9 else f" (compared by {figure(one.score)})"
    return f"{figure(one.confidence)}{score}"


def outcome_words(step: Step, place: int, regret: Regret | None = None) -> str:
    """What a proposal had accepted, or would have had; what is not known is called so."""
    proposal, read = step.proposals[place], reading(step, place, regret)
    name, tree, count, then = proposal.name, proposal.tree, len(read.path), ""
    run = "".join([label(int(tree.token[node]), step.texts) for node in read.path])
    run = f" ('{run}')" if run else ""
    if read.own is not None:
        held = {int(tree.token[child]) for child in tree.children[read.path[-1] if read.path else 0]}
        why = ", which it does not hold" if held and read.own[0] not in held else ""
        then = f" Then the target chose {quoted(read.own[0], step.texts)}{why}."
    if proposal.chosen or regret is not None:
        return f"{name} {'had' if proposal.chosen and not merged(step) else 'has'} {count} accepted{run}.{then}"
    if step.counts.lossy:
        return f"What typical acceptance would have taken of {name} is unknown without verifying it."
    unknown, more = read.looks.count("drafted"), count - len(step.accepted)
    gap = f"{abs(more)} {'more' if more > 0 else 'fewer'}" if more else "as many"
    words = f"{name} would have had {'at least ' if unknown else ''}{count} accepted{run}: {gap}.{then}"
    beyond = f" What the target makes of the {plural(unknown, 'node')} beyond is unknown without verifying."
    return words + (beyond if unknown else "")


def sources_words(step: Step) -> str:
    """Of a merged tree: whose its nodes are, and whose the accepted ones."""
    whose = {name: f"{name} alone" for name in (one.name for one in step.proposals)}
    nodes = ", ".join([f"{n} of {whose.get(name, name)}" for name, n in Counter(step.tree.source[1:]).items()])
    runs = [
        f"{plural(len(list(run)), 'token')} of {whose.get(name, name)}"
        for name, run in groupby(step.tree.source[node] for node in step.accepted)
    ]
    taken = f"The accepted path took {', then '.join(runs)}." if runs else "No drafted token was accepted."
    return f"{plural(len(step.tree) - 1, 'node')}: {nodes}. {taken}"


def regret_words(step: Step, regret: Regret) -> str:
    """What verifying both trees came to."""
    counts = zip(regret.names, regret.accepted, strict=True)
    each = " and ".join([f"{name} has {count} accepted" for name, count in counts])
    if merged(step):
        return f"Verified alone, {each}; as one tree they had {len(step.accepted)}."
    lost = plural(regret.tokens, "token") if regret.tokens else "nothing"
    return f"Both verified, {each}: the choice lost {lost}."


def summary(step: Step, regret: Regret | None = None) -> str:
    """The choice and what came of it, in sentences; empty where there was none."""
    if not step.proposals:
        return ""
    if merged(step):
        return f"{choice_words(step)} {sources_words(step)}"
    return " ".join([choice_words(step), *(outcome_words(step, place, regret) for place in range(len(step.proposals)))])


_MEANINGS = {
    "accepted": "the text goes on with it",
    "rejected": "the target chose another token",
    "not reached": "the accept path does not reach it",
    "drafted": "unknown: not verified",
}


def drafts_drawing(step: Step, regret: Regret | None = None) -> Drawing:
    """Everything about the choice between the trees of an iteration; "" where there was one alone.

    `regret`: both trees verified; it may be of another iteration.
    """
    if not step.proposals:
        return ""
    found = regret if regret is not None and regret.steps[0].index == step.index else None
    words = [labelled("Choice", choice_words(step))]
    if merged(step):
        words.append(labelled("Merged", sources_words(step)))
    for chosen, name in ((True, "Verified"), (False, "The other" if found else "Not verified")):
        for place, one in enumerate(step.proposals):
            if one.chosen is chosen and not merged(step):
                words.append(labelled(name, outcome_words(step, place, found)))
    if found is not None:
        words.append(labelled("On request", regret_words(step, found)))
    return [markup.tag("div", *words, class_="speclab-drafts-view"), trees_spec(step, found)]


_PROPOSERS = "triangle-up", "triangle-down", "hourglass"
"""Of the first, of the second, of both."""


def trees_spec(step: Step, regret: Regret | None = None) -> Spec:
    """The proposed trees on the same columns; of a merged tree each node has the symbol of who proposed it."""
    if merged(step):
        return _merged_spec(step)
    graphs, titles = [], []
    for place, one in enumerate(step.proposals):
        read = reading(step, place, regret)
        graphs.append(tree_graph(one.tree, step.texts, read.looks, read.path, read.own))
        verdict = "verified" if one.chosen else "verified on request" if regret else "not verified"
        ahead = margin(step, place)
        signed = f"{'−' if ahead < 0 else '+'}{figure(abs(ahead))}"
        titles.append(f"{one.name}: {verdict}, mean {_figures(one)}, margin {signed}")
    whole = [one.chosen and len(one.tree) == len(step.tree) for one in step.proposals]  # its nodes have their numbers
    drawn = small_tree_specs(graphs, titles, pick=whole.index(True) if any(whole) else None)
    for trace in [trace for one in drawn for trace in one["data"] if trace.get("name") == LOOKS["drafted"].label]:
        trace["name"] = _MEANINGS["drafted"]
    return abreast(drawn, titles, summary(step, regret), meta={"name": "drafts"})


def _merged_spec(step: Step) -> Spec:
    names = [one.name for one in step.proposals]
    made = graph(step)
    for node, at in made.nodes.items():
        if isinstance(node, int) and node:
            at["symbol"] = _PROPOSERS[names.index(at["source"]) if at["source"] in names else -1]
    said = sources_words(step)
    key = [{"x": [None], "y": [None], "mode": "markers", "name": f"proposed by {name}", "showlegend": True,
            "marker": {"symbol": symbol, "size": 10, "color": PAPER, "line": {"color": INK, "width": 1}}}
           for symbol, name in zip(_PROPOSERS, [*names, "both"], strict=True)]  # fmt: skip
    (drawn,) = small_tree_specs([made], [said], width=900, pick=0)
    drawn["data"] += key
    return abreast([drawn], ["Verified as one tree"], said, meta={"name": "drafts"})


def nodes_table(step: Step) -> str:
    """Every node of every proposed tree, as an HTML table; nothing where there was but one."""
    if not step.proposals:
        return ""
    rows = [
        (one.name, node, label(int(one.tree.token[node]), step.texts), int(one.tree.depth[node]),
         int(one.tree.parent[node]), *(f"{exp(p[node]):.3f}" for p in (one.tree.log_prob, one.tree.path_log_prob)),
         _MEANINGS.get(look, "the root"))
        for place, one in enumerate(step.proposals)
        for node, look in enumerate(reading(step, place).looks)
    ]  # fmt: skip
    head = ("tree", "node", "token", "depth", "parent", "draft p", "path p", "what is known of it")
    return markup.table(f"Trees proposed in iteration {step.index + 1}", head, rows)


def routing_drawing(trace: Trace, cursor: int | None = None) -> Drawing:
    """Margins over the newest iterations, and one row per tree; "" where none had two trees."""
    steps = trace.steps[:cursor][-NEWEST:]
    found = statistics(replace(trace, steps=steps)) if any(len(step.proposals) == 2 for step in steps) else None
    if found is None:
        return ""
    said = routing_sentence(found)
    rows = [
        (part.name, part.chosen, bar(part.chosen / found.iterations, room=80),
         f"{part.committed / part.chosen:.2f}" if part.chosen else "–", figure(part.confidence), figure(part.share),
         f"{part.expected:.2f}", f"{part.followed:.2f}")
        for part in found.parts
    ]  # fmt: skip
    head = (
        "tree", "chosen", "", "tokens per iteration when chosen", "mean confidence",
        "share of its nodes the text followed", "expected tokens", "followed",
    )  # fmt: skip
    return [margins_spec(steps, said), markup.table(said, head, rows)]


def routing_sentence(found: Routing) -> str:
    """One sentence, such as: Routing over 12 iterations: code 7, prose 5; mean margin 0.081."""
    chosen = ", ".join([f"{part.name} {part.chosen}" for part in found.parts])
    return f"Routing over {plural(found.iterations, 'iteration')}: {chosen}; mean margin {figure(found.margin)}."


def margins_spec(steps: Sequence[Step], said: str) -> Spec:
    """One bar per iteration: up where the first tree scored higher, down where the second did; a click goes there."""
    two = [step for step in steps if len(step.proposals) == 2]
    verb = "scores higher" if merged(two[-1]) else "chosen"
    data = []
    for place, one in enumerate(two[-1].proposals):
        own = [(step.index + 1, margin(step, 0)) for step in two if (margin(step, 0) < 0) == bool(place)]
        hover = [lines(f"Iteration {i}: {one.name} {verb}, margin {figure(abs(ahead))}") for i, ahead in own]
        at, by = [i for i, _ in own], [round(ahead, 5) for _, ahead in own]
        data.append({"type": "bar", "x": at, "y": by, "customdata": at, "hovertext": hover, "hoverinfo": "text",
                     "meta": {"click": "iteration"}, "marker": {"color": SOURCE_COLORS[place]}})  # fmt: skip
    names = [escape(f"{mark} {one.name} {verb}") for mark, one in zip("▲▼", two[-1].proposals, strict=True)]
    notes = [note(names[0], 0, 1), note(names[1], 0, 0, yanchor="top")]
    first, last = two[0].index + 1, two[-1].index + 1
    xaxis = {"title": {"text": "iteration"}, "range": [first - 0.6, max(last, first + 11) + 0.6], "tickformat": "d"}
    return spec(
        data, label=said, height=170, annotations=notes, xaxis=xaxis, bargap=0.2, meta={"name": "margins"},
        yaxis={"zeroline": True, "zerolinecolor": INK, "nticks": 4, "title": {"text": "margin"}},
        margin={"l": 64, "r": 12, "t": 22, "b": 56},
    )  # fmt: skip
