"""SuffixDecoding's figure, for the iteration shown: what was looked up, what followed it how often, what was taken.

The paper's diagram shows all of a run at once; this one is drawn for each iteration, and grows with its levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from speclab.trace.records import Event, Step, Trace
from speclab.views import markup, playback
from speclab.views.draft_tree import Ink, staged
from speclab.views.explain import plural
from speclab.views.figures import INK, Drawing, Spec, lines, note, spec
from speclab.views.markup import label, labelled, quoted
from speclab.views.networks import Graph, attach
from speclab.views.palette import LOOKS, SOURCE_COLORS
from speclab.views.playback import WHOLE, PlaybackPosition

SHOWN, OTHERS = 6, 3
"""Tokens of a pattern that are drawn at most, the newest; tokens after a node that were counted and not drafted."""
WIDTH, ROW, ROWS = 980.0, 30.0, 14
"""Pixels of the figure's width and of a row, and rows at most; what is more is folded."""
ROOMY = (1.2, 1.4, 1.6, 1.8)
"""How much wider than at its tightest a path is drawn that does not fit: it is dragged, so its labels may be whole."""
COUNTED = "counted, not drafted"
_READ = (
    "Left stand the last tokens of the text, as many as were looked up. Then comes every token that came next, with "
    "how often of how many times, and D(N), the product of these shares on its path. A number says in which order a "
    "token was added, always the one with the largest D(N); open squares were counted and not drafted."
)
_KINDS = {"per-request": "this request", "global": "earlier outputs"}


def suffixes_drawing(trace: Trace, cursor: int | None = None, position: PlaybackPosition = WHOLE) -> Drawing:
    """The suffix tree below the pattern that matched, and the score of every pattern length; "" of other strategies."""
    steps = trace.steps[:cursor]
    if not steps or not _scores(steps[-1]):
        return ""
    step, said = steps[-1], suffixes_words(trace, cursor)
    parts: list[Any] = [labelled("Suffix trees", said)]
    if len(step.tree) > 1:
        parts += [tree_spec(trace, step, said, position), labelled("How to read it", _READ)]
    return [*parts, scores_spec(step)]


def suffixes_words(trace: Trace, cursor: int | None = None) -> str:
    """Which pattern was taken, from which suffix tree, and what it was compared with; "" of other strategies."""
    steps = trace.steps[:cursor]
    scores = _scores(steps[-1]) if steps else []
    if not scores:
        return ""
    tried = {name: sum(one["tree"] == name for one in scores) for name in _KINDS}
    lengths = " and ".join(
        [f"{plural(count, 'pattern length')} in {_KINDS[name]}" for name, count in tried.items() if count]
    )
    taken = next((one for one in scores if one["chosen"]), None)
    if taken is None:
        return f"{lengths} matched, and nothing likely enough follows: the target decodes alone."
    pattern = " ".join([quoted(token, trace.texts) for token in _pattern(trace, steps[-1])[-SHOWN:]])
    return (
        f"{lengths} matched. Taken: {_last(taken['pattern'])}, "
        f"{'… ' if taken['pattern'] > SHOWN else ''}{pattern}, found {_times(taken['occurrences'])} in "
        f"{_KINDS[taken['tree']]}: {plural(taken['tokens'], 'token')} of at most {taken['most']} below them, score "
        f"{taken['score']:.2f}, the largest."
    )


def _last(tokens: int) -> str:
    return "the newest token" if tokens == 1 else f"the last {tokens} tokens"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _scores(step: Step) -> list[Mapping[str, Any]]:
    return [event.values for event in step.events if event.kind == "score"]


def _added(step: Step) -> dict[int, Mapping[str, Any]]:
    """Node to its counts, of those that were drafted."""
    return {event.node: event.values for event in step.events if event.kind == "added" and event.node is not None}


def _pattern(trace: Trace, step: Step) -> Sequence[int]:
    """The tokens that were looked up, the newest last: the root of the draft tree."""
    route: Event = next(event for event in step.events if event.kind == "route")
    length = int(route.values.get("match") or 0)
    text = (*trace.prompt_ids, *trace.token_ids(step.index))
    return text[len(text) - length :]


def tree_spec(trace: Trace, step: Step, said: str, position: PlaybackPosition = WHOLE) -> Spec:
    """The pattern and the part of the suffix tree below it, as far as it was drafted by then."""
    whole, notes = _graph(trace, step, playback.verdicts(step, position))
    drafted = playback.present(step, position)
    now = whole.copy()
    now.remove_nodes_from(
        [node for node, at in whole.nodes.items() if at["below"] is not None and not drafted[at["below"]]]
    )

    def tips(nodes: Sequence[Any]) -> dict[Any, str]:
        return {
            node: lines(f"'{at['label']}' · id {at['token']}", at.get("counted", "looked up"), at["kind"])
            for node in nodes
            if node in whole and (at := whole.nodes[node])
        }

    leaves = sum(not degree for _, degree in whole.out_degree())
    ink = Ink(tips, notes, stage=False, pick=False, name=f"suffixes-{step.index + 1}")
    height = ROW * (min(leaves, ROWS) + 1)
    drawn = staged(whole, now, f"Suffix tree. {said}", ink, WIDTH, height, 1.0)
    seen, tightest = drawn["layout"]["xaxis"]["range"], drawn["layout"]["meta"]["fit"]["x"][1]
    for roomy in ROOMY if tightest > seen[1] else ():
        drawn = staged(whole, now, f"Suffix tree. {said}", ink, tightest * roomy, height, 1.0)
        drawn["layout"]["width"], drawn["layout"]["xaxis"]["range"] = WIDTH, seen
        if not any("…" in text for one in drawn["data"] for text in one.get("text", ())):
            break
    drawn["layout"]["dragmode"] = "pan"
    for one in drawn["data"]:
        if one.get("name") == LOOKS["drafted"].label and position.reached("verify"):
            one["name"] = COUNTED
    return drawn


def _graph(trace: Trace, step: Step, verdicts: Sequence[str]) -> tuple[Graph, dict[Any, str]]:
    """Nodes are the order in which a token was added, 0 for the newest token; and what stands below their labels.

    `below`: the draft node without which a node is not there yet; None of the pattern.
    """
    import networkx as nx

    made: Graph = nx.DiGraph()
    texts, notes, added = {**trace.texts, **step.texts}, dict[Any, str](), _added(step)
    pattern = _pattern(trace, step)
    names: list[Any] = [f"pattern {back}" for back in range(min(len(pattern), SHOWN) - 1, 0, -1)] + [0]
    above: Any = -1
    for name, token in zip(names, pattern[-SHOWN:], strict=True):
        attach(made, name, token, texts, above, verdict="root", kind="the pattern", below=None)
        made.nodes[name]["accepted"] = True
        above = name
    order = {0: 0} | {node: int(counts["order"]) for node, counts in added.items()}

    def counted(name: Any, token: int, node: int, places: int, among: int, prob: float, **more: Any) -> None:
        attach(made, name, token, texts, order[node], **more)
        what = f"{places} of {among} times, D(N) {prob:.3f}"
        made.nodes[name].update(path_prob=prob, draft_prob=places / among, counted=what)
        notes[name] = f"{places}/{among}→{f'{prob:.2f}'.removeprefix('0').removesuffix('.00')}"

    for node, record in enumerate(step.nodes):
        children = [child for child in step.tree.children[node] if child in added]
        for child in children:
            counts, kind = added[child], verdicts[child]
            counted(order[child], int(step.tree.token[child]), node, counts["places"], counts["among"],
                    step.nodes[child].path_prob, verdict=kind, kind=kind, below=child)  # fmt: skip
            made.nodes[order[child]]["accepted"] = kind == "accepted"
        taken = {int(step.tree.token[child]) for child in step.tree.children[node]}
        among = int(added[children[0]]["among"]) if children else 0
        rest = [(token, share) for token, share in record.draft_top if token not in taken][:OTHERS] if children else []
        for token, share in rest:
            counted(f"{order[node]}, {token}", token, node, round(share * among), among, share * record.path_prob,
                    verdict="drafted", kind=COUNTED, below=children[0], symbol="square-open")  # fmt: skip
    return made, notes


def scores_spec(step: Step) -> Spec:
    """SCORE of every pattern length that matched, in each suffix tree; the one that was taken is marked."""
    scores = _scores(step)
    data: list[Spec] = []
    notes: list[Spec] = []
    for place, (name, kind) in enumerate(_KINDS.items()):
        color = SOURCE_COLORS[place]
        own = [one for one in scores if one["tree"] == name]
        hover = [
            lines(f"{_last(one['pattern'])}: found {_times(one['occurrences'])} in {kind}",
                  f"{plural(one['tokens'], 'token')} of at most {one['most']}, score {one['score']:.3f}")
            for one in own
        ]  # fmt: skip
        data.append({
            "type": "bar", "name": kind, "x": [one["pattern"] for one in own],
            "y": [round(one["score"], 4) for one in own],
            "hovertext": hover, "hoverinfo": "text", "showlegend": bool(own), "offsetgroup": name,
            "marker": {"color": color, "pattern": {"shape": "/" if place else "", "bgcolor": color, "fgcolor": INK}},
        })  # fmt: skip
        notes += [
            {"x": one["pattern"], "y": one["score"], "text": f"taken: {one['score']:.2f}, {kind}", "showarrow": True,
             "ax": 0, "ay": -18, "arrowhead": 2, "arrowcolor": INK}
            for one in own if one["chosen"]
        ]  # fmt: skip
    deepest = max(one["pattern"] for one in scores)
    most = max(one["score"] for one in scores)
    across = {"title": {"text": "pattern length p: tokens looked up"}, "tickformat": "d"}
    said = f"Score of each pattern length in iteration {step.index + 1}: solid this request, striped earlier outputs."
    return spec(
        data, label=said, height=190, barmode="group", bargap=0.3, meta={"name": f"scores-{step.index + 1}"},
        xaxis={**across, "range": [0.4, max(deepest, 8) + 0.6]},
        yaxis={"title": {"text": "score"}, "range": [0, max(1.35 * most, 0.1)], "nticks": 4},
        annotations=[*notes, note(said, 0, 1, yshift=4)], margin={"l": 56, "r": 12, "t": 26, "b": 44}, showlegend=False,
        legend={"orientation": "h", "x": 0, "y": -0.3, "yanchor": "top"},
    )  # fmt: skip


def suffixes_table(trace: Trace, cursor: int | None = None) -> str:
    """Every pattern length with its score, and every drafted token in the order added; "" of other strategies."""
    steps = trace.steps[:cursor]
    if not steps or not _scores(steps[-1]):
        return ""
    step, added = steps[-1], _added(steps[-1])
    tried = [
        (_KINDS[one["tree"]], one["pattern"], one["occurrences"], one["tokens"], one["most"], f"{one['score']:.3f}",
         "taken" if one["chosen"] else "")
        for one in _scores(step)
    ]  # fmt: skip
    head = ("suffix tree", "pattern length", "occurrences", "tokens", "at most", "score", "")
    rows = [
        (counts["order"], label(int(step.tree.token[node]), step.texts), int(step.tree.depth[node]),
         f"{counts['places']} of {counts['among']}", f"{exp(step.tree.log_prob[node]):.3f}",
         f"{step.nodes[node].path_prob:.3f}", step.nodes[node].verdict)
        for node, counts in sorted(added.items(), key=lambda item: item[1]["order"])
    ]  # fmt: skip
    nodes = ("added as", "token", "depth", "count", "C(N)", "D(N)", "verdict")
    return markup.table(f"Pattern lengths of iteration {step.index + 1}", head, tried) + (
        markup.table(f"Suffix tree tokens drafted in iteration {step.index + 1}", nodes, rows) if rows else ""
    )
