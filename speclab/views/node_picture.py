"""The target's and the draft's distribution after a node, and the draw where sampling stopped.

Acceptance tries the children of a node in order (Leviathan et al. 2023; SpecInfer, Algorithm 2):
one is accepted with probability min(1, p / q); a rejection leaves the target the residual
norm(max(p - q, 0)). `page/node.js` draws the same in the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speclab.trace.records import UNKNOWN, Residual, Step, Trial
from speclab.views.sentences import node_sentence, plain_sentence
from speclab.views.theme import LOOKS, SOURCE_COLORS, STYLE, Spec, note, spec, trace
from speclab.views.tokens import clip, label, percent, plot_text, quoted, width
from speclab.views.words import WORDS, fill

MOST = 9
"""Most tokens in the picture: the children, the target's choice, then the most probable ones."""
PANELS = ("p", "q", "residual", "plain")
Probabilities = Mapping[int, float]


def draw_node(step: Step, node: int) -> Spec:
    """The most probable next tokens after a node, for the target and for the draft."""
    record = step.nodes[node]
    known = {
        "p": dict(record.target_top),
        "plain": dict(step.plain[node]) if step.plain else {},
        "q": dict(record.draft_top),
    }
    drafted = "log_prob" not in step.missing
    children = {int(step.tree.token[child]): child for child in reversed(step.tree.children[node])}
    notes = {}
    for token, child in children.items():
        below = step.nodes[child]
        notes[token] = f"node {child} {LOOKS[below.verdict].sign}"
        if drafted:
            known["q"].setdefault(token, below.draft_prob)
        if below.target_prob is not None:
            known["p"].setdefault(token, below.target_prob)
    if record.target_choice != UNKNOWN:
        chosen = f"{notes.get(record.target_choice, '')} {WORDS['bars']['chosen']}"
        notes[record.target_choice] = chosen.strip()
    names = ["p", *(["plain"] if step.plain else []), *(["q"] if drafted else [])]
    sentences = [node_sentence(step, node), plain_sentence(step, node)]
    panels = {name: known[name] for name in names}
    return _bars(step, panels, notes, children, " ".join(filter(None, sentences)))


def _bars(
    step: Step,
    panels: Mapping[str, Probabilities],
    notes: Mapping[int, str],
    nodes: Mapping[int, int],
    sentence: str,
) -> Spec:
    """Horizontal bars, one panel per distribution, the same tokens in each, the most probable first."""
    tokens = _shown(panels, notes)
    y = list(range(len(tokens)))
    data = []
    titles = []
    axes: dict[str, Any] = {}
    for number, (name, probs) in enumerate(panels.items()):
        key = str(number + 1) if number else ""
        start = number / len(panels)
        end = (number + 0.8) / len(panels)
        axes[f"xaxis{key}"] = {**STYLE["layouts"]["node"]["xaxis"], "domain": [start, end]}
        titles.append(note(WORDS["bars"][name], start, 1))
        data.append(
            trace(
                "bars",
                x=[probs.get(token) for token in tokens],
                y=y,
                xaxis=f"x{key}",
                text=[percent(probs[token]) if token in probs else "" for token in tokens],
                customdata=[nodes.get(token) for token in tokens],
                marker={"color": SOURCE_COLORS[PANELS.index(name)]},
            )
        )
    ticks = _ticks(step, tokens, notes)
    yaxis = {"tickvals": y, "ticktext": ticks, "range": [len(tokens) - 0.5, -0.5]}
    height = 60 + 22 * len(tokens)
    return spec(data, sentence, "node", height=height, annotations=titles, yaxis=yaxis, **axes)


def _shown(panels: Mapping[str, Probabilities], notes: Mapping[int, str]) -> list[int]:
    """The tokens with notes, and the most probable others."""
    first = next(iter(panels.values()))
    every = {token for probs in panels.values() for token in probs} | set(notes)

    def rank(token: int) -> tuple[float, float, int]:
        most = max(probs.get(token, 0.0) for probs in panels.values())
        return (-first.get(token, 0.0), -most, token)

    order = sorted(every, key=rank)
    others = [token for token in order if token not in notes][: max(MOST - len(notes), 3)]
    return [token for token in order if token in notes or token in others]


def _ticks(step: Step, tokens: Sequence[int], notes: Mapping[int, str]) -> list[str]:
    """Names and notes of the rows; plotly aligns to the right, so both are padded."""
    names = [clip(label(token, step.texts), 18) for token in tokens]
    beside = [notes.get(token, "") for token in tokens]
    room = max(map(width, names), default=0) + 2
    side = max(map(width, beside), default=0) + 1

    def padded(text: str, columns: int) -> str:
        return text + "\u00a0" * (columns - width(text))

    return [
        plot_text(padded(name, room)) + padded(words, side)
        for name, words in zip(names, beside, strict=True)
    ]


def draw_residual(step: Step) -> Spec:
    """The distributions where sampling stopped: p, q (if candidates were sampled) and the residual."""
    left = step.residual
    if left is None:
        return {}
    panels = {
        "p": {each.token: each.target for each in left.tokens},
        "q": {each.token: each.draft for each in left.tokens if each.draft is not None},
        "residual": {each.token: each.residual for each in left.tokens},
    }
    nodes = candidates(step, left)
    notes = {token: f"node {node}" for token, node in nodes.items()}
    for trial in rejections(step):
        token = step.nodes[trial.node].token
        notes[token] = f"node {trial.node} {WORDS['bars']['rejected']}"
    if step.bonus is not None:
        notes[step.bonus] = WORDS["bars"]["drawn"]
    drawn = {name: probs for name, probs in panels.items() if probs}
    return _bars(step, drawn, notes, nodes, residual_sentence(step))


def candidates(step: Step, left: Residual) -> dict[int, int]:
    """The children at which sampling stopped, by token."""
    nodes = (0,) if left.node is None else step.tree.children[left.node]
    recorded = {each.token for each in left.tokens}
    return {step.nodes[node].token: node for node in nodes if step.nodes[node].token in recorded}


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
    where = fill("residual", "root" if left.node is None else "node", {"node": left.node})
    prob = {each.token: each.target for each in left.tokens}.get(step.bonus, 0.0)
    values: dict[str, Any] = {"token": step.bonus, "prob": prob, "where": where}
    tried = rejections(step)
    if tried:
        tests = [
            fill("residual", "test", _trial_values(step, trial), step.texts) for trial in tried
        ]
        return fill("residual", "tried", {**values, "tests": "; ".join(tests)}, step.texts)
    names = [quoted(token, step.texts) for token in candidates(step, left)]
    values["names"] = " or ".join(names)
    return fill("residual", "once" if names else "alone", values, step.texts)


def _trial_values(step: Step, trial: Trial) -> dict[str, Any]:
    ratio = min(1.0, trial.target / trial.against) if trial.against else 1.0
    return {
        "token": step.nodes[trial.node].token,
        "target": trial.target,
        "against": trial.against,
        "ratio": ratio,
    }
