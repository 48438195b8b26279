"""The target's and the draft's distribution after a node, and the draw where sampling stopped.

Acceptance tries the children of a node in order (Leviathan et al. 2023; SpecInfer, Algorithm 2):
one is accepted with probability min(1, p / q); a rejection leaves the target the residual
norm(max(p - q, 0)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speclab.trace.records import Residual, Step, Trial
from speclab.views.sentences import node_sentence, plain_sentence
from speclab.views.theme import INK, LOOKS, PLOT_MONO, SOURCE_COLORS, Spec, fill, note, spec
from speclab.views.tokens import clip, label, percent, plot_text, plural, quoted, table, width

MOST = 9
"""Most tokens in the picture: the children, the target's choice, then the most probable ones."""
PANELS = {
    "p": ("target p", "after this node"),
    "q": ("draft q", "after this node"),
    "residual": ("residual", "max(0, p − q), scaled to 1"),
    "plain": ("plain p", "its path run plainly"),
}
Probabilities = Mapping[int, float]


def bars_template(names: Sequence[str] = ("p", "q")) -> Spec:
    """Horizontal bars, one panel per name, with `@` columns for the page to fill."""
    data = []
    notes = []
    axes: dict[str, Any] = {}
    for number, name in enumerate(names):
        key = str(number + 1) if number else ""
        title, meaning = PANELS[name]
        data.append({
            "type": "bar", "orientation": "h", "x": f"@{name}", "y": "@place", "xaxis": f"x{key}", "yaxis": "y",
            "text": f"@{name} text", "textposition": "outside", "cliponaxis": False, "customdata": "@node",
            "marker": {"color": SOURCE_COLORS[list(PANELS).index(name)]}, "hoverinfo": "skip",
            "textfont": {"size": 11, "color": INK},
        })  # fmt: skip
        start = number / len(names)
        end = (number + 0.8) / len(names)
        quiet = {"showticklabels": False, "showgrid": False, "fixedrange": True}
        axes[f"xaxis{key}"] = {**quiet, "domain": [start, end], "range": [0, 1.02]}
        notes.append(note(f"<b>{title}</b>  {meaning}", start, 1))
    ticks = {
        "tickvals": "@place",
        "ticktext": "@ticks",
        "tickfont": {"size": 12, "family": PLOT_MONO, "color": INK},
    }
    rows = {"autorange": "reversed", "fixedrange": True, "showgrid": False, "automargin": True}
    margin = {"l": 8, "r": 8, "t": 28, "b": 6}
    layout = {"height": 60 + 22 * MOST, "margin": margin, "bargap": 0.3, "dragmode": False}
    return spec(data, "", "node", annotations=notes, yaxis={**ticks, **rows}, **axes, **layout)


def node_columns(step: Step, node: int) -> dict[str, list[Any]]:
    """The rows of `bars_template` for a node: the same tokens in both panels, most probable first.

    The page computes the same rows from `node_tops` (`nodeColumns` in page.js).
    """
    children, target, draft = node_tops(step, node)
    choice = step.nodes[node].target_choice
    said = {
        token: f"node {child} {LOOKS[step.nodes[child].verdict].sign}"
        for token, child in children.items()
    }
    said[choice] = f"{said.get(choice, '')} ★ chosen".strip()
    known = {"p": target, "plain": dict(step.plain[node]) if step.plain else {}, "q": draft}
    return _columns(step, {name: known[name] for name in panels_of(step)}, said, children)


def node_tops(step: Step, node: int) -> tuple[dict[int, int], dict[int, float], dict[int, float]]:
    """The children of a node by token, and the target's and the draft's probabilities of the top-k and the children."""
    record = step.nodes[node]
    target = dict(record.target_top)
    draft = dict(record.draft_top)
    children = {int(step.tree.token[child]): child for child in reversed(step.tree.children[node])}
    for token, child in children.items():
        if "log_prob" not in step.missing:
            draft.setdefault(token, step.nodes[child].draft_prob)
        probability = step.nodes[child].target_prob
        if probability is not None:
            target.setdefault(token, probability)
    return children, target, draft


def _columns(
    step: Step,
    panels: Mapping[str, Probabilities],
    said: Mapping[int, str],
    nodes: Mapping[int, int],
) -> dict[str, list[Any]]:
    first = next(iter(panels.values()))
    every = {token for probs in panels.values() for token in probs} | set(said)
    order = sorted(
        every,
        key=lambda token: (
            -first.get(token, 0.0),
            -max(p.get(token, 0.0) for p in panels.values()),
        ),
    )
    others = [token for token in order if token not in said][: max(MOST - len(said), 3)]
    tokens = [token for token in order if token in said or token in others]
    names = [clip(label(token, step.texts), 18) for token in tokens]
    room = max([width(name) for name in names], default=0) + 2
    side = max([width(words) for words in said.values()], default=0)
    ticks = []
    # plotly aligns labels to the right, so both parts are padded
    for name, token in zip(names, tokens, strict=True):
        words = said.get(token, "")
        padding = ["\u00a0" * (room - width(name)), "\u00a0" * (side + 1 - width(words))]
        ticks.append(plot_text(name) + padding[0] + words + padding[1])
    columns: dict[str, list[Any]] = {
        "place": list(range(len(tokens))),
        "ticks": ticks,
        "node": [nodes.get(token) for token in tokens],
    }
    for name, probs in panels.items():
        columns[name] = [None if token not in probs else round(probs[token], 4) for token in tokens]
        columns[f"{name} text"] = [
            "" if value is None else percent(value) for value in columns[name]
        ]
    return columns


def panels_of(step: Step) -> tuple[str, ...]:
    """The panels of a node: the target, the plain run if there was a check, the draft if it is recorded."""
    return ("p", *(["plain"] if step.plain else []), *([] if "log_prob" in step.missing else ["q"]))


def draw_node(step: Step, node: int) -> Spec:
    """The most probable next tokens after a node, for the target and for the draft."""
    drawn = fill(bars_template(panels_of(step)), node_columns(step, node))
    drawn["layout"]["meta"]["sentence"] = " ".join(
        [node_sentence(step, node), plain_sentence(step, node)]
    )
    return drawn


def draw_residual(step: Step) -> Spec:
    """The distributions where sampling stopped: p, q (if candidates were sampled) and the residual."""
    left = step.residual
    if left is None:
        return {}
    panels = {"p": {each.token: each.target for each in left.tokens}}
    draft = {each.token: each.draft for each in left.tokens if each.draft is not None}
    if draft:
        panels["q"] = draft
    panels["residual"] = {each.token: each.residual for each in left.tokens}
    said = {token: f"node {node}" for token, node in candidates(step, left).items()}
    for trial in rejections(step):
        said[int(step.tree.token[trial.node])] = f"node {trial.node} ✕ rejected"
    if step.bonus is not None:
        said[step.bonus] = "★ drawn"
    drawn = fill(bars_template(tuple(panels)), _columns(step, panels, said, candidates(step, left)))
    drawn["layout"]["meta"]["sentence"] = residual_sentence(step)
    return drawn


def candidates(step: Step, left: Residual) -> dict[int, int]:
    """The children at which sampling stopped, by token."""
    nodes = (0,) if left.node is None else step.tree.children[left.node]
    recorded = {each.token for each in left.tokens}
    return {
        int(step.tree.token[node]): node for node in nodes if int(step.tree.token[node]) in recorded
    }


def rejections(step: Step) -> list[Trial]:
    """The children that were tried and rejected where sampling stopped, in order."""
    node = None if step.residual is None else step.residual.node
    parent = -1 if node is None else node
    return [
        trial
        for trial in step.trials
        if not trial.accepted and step.tree.parent[trial.node] == parent
    ]


def residual_sentence(step: Step) -> str:
    """Describe the rejected candidates and the target's draw; empty if nothing was drawn."""
    left = step.residual
    if left is None or step.bonus is None:
        return ""
    drawn = quoted(step.bonus, step.texts)
    probability = {each.token: each.target for each in left.tokens}.get(step.bonus, 0.0)
    where = "before the root" if left.node is None else f"after node {left.node}"
    own = f"The target sampled {drawn} {where} (p = {percent(probability)})"
    if not rejections(step):
        tried = candidates(step, left)
        if not tried:
            return f"{own}; there was no candidate."
        names = " or ".join([quoted(token, step.texts) for token in tried])
        return f"{own}; a candidate, {names}, would have been accepted if it had been drawn."
    tests = [
        f"{quoted(int(step.tree.token[trial.node]), step.texts)} was rejected: p / q = {percent(trial.target)} / "
        f"{percent(trial.against)}, accepted with {percent(_ratio(trial))}"
        for trial in rejections(step)
    ]
    return f"{'; '.join(tests)}. The target then sampled {drawn} from the residual."


def _ratio(trial: Trial) -> float:
    return min(1.0, trial.target / trial.against) if trial.against else 1.0


def draws_table(step: Step) -> str:
    """The tried children in order, then the target's draw, as an HTML table."""
    left = step.residual
    if left is None:
        return ""
    rows = [
        (number, f"{label(int(step.tree.token[trial.node]), step.texts)} (node {trial.node})", f"{trial.target:.4f}",
         f"{trial.against:.4f}", f"{_ratio(trial):.4f}", "rejected")
        for number, trial in enumerate(rejections(step), start=1)
    ]  # fmt: skip
    if step.bonus is not None:
        rows.append(
            (len(rows) + 1, label(step.bonus, step.texts), "", "", "", "drawn by the target")
        )
    head = ("draw", "token", "p left", "q left", "min(1, p / q)", "outcome")
    return table(f"{plural(len(rows), 'draw')}, rule: {step.rule}", head, rows)
