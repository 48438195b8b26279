"""What followed a node: the distributions of draft and target, its children, and where sampling stopped each draw.

Acceptance tries the children of a node in their order (Leviathan et al. 2023; SpecInfer, Algorithm 2): one is accepted
with probability min(1, p / q); a rejection leaves the target norm(max(p - q, 0)), from which the next is judged.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

from speclab.trace.records import Residual, Step, TokenProb, Trial
from speclab.views import markup
from speclab.views.explain import linked, node_table, plural, step_words, typical, warning, why
from speclab.views.figures import INK, LINE, Part, Spec, note, spec, token_text
from speclab.views.markup import label, labelled, quoted
from speclab.views.palette import LOOKS, PLOT_MONO, SOURCE_COLORS

MOST = 10
"""Tokens drawn: the candidates, the token drawn, and the most probable besides."""
UNSELECTED = "Click a node of the tree, a row of the mask, or a link in a sentence, to read what is recorded of it."
TARGET, DRAFT, LEFT = SOURCE_COLORS[:3]
Probs = dict[int, float]
_SHAPES = {"circle": "● ", "x": "✕ ", "circle-open": "○ "}
_SIGNS = {kind: _SHAPES[look.symbol] for kind, look in LOOKS.items() if look.symbol in _SHAPES}


# Rows of bars


class Column(NamedTuple):
    """Bars of one colour under a name and what it means; a token without a probability is not recorded."""

    name: str
    meaning: str
    color: str
    probs: Probs


class Row(NamedTuple):
    """A token, what is said of it after the sign of a verdict, if any, and the node that a click selects."""

    token: int
    verdict: str = ""
    said: str = ""
    node: int | None = None
    strong: bool = False


def bars_spec(step: Step, columns: Sequence[Column], rows: Sequence[Row], *, label: str, view: str) -> Spec:
    """Horizontal bars in columns that share their rows, all on one scale; the last row is of all other tokens."""
    shown = [row.token for row in rows]
    names = [token_text(markup.clip(step.texts[one], 18)) if one in step.texts else f"#{one}" for one in shown]
    names, places = [*names, "the rest"], [*range(len(rows) + 1)]
    values = [
        [*map(probs.get, shown), max(0.0, 1 - sum([probs.get(one, 0.0) for one in shown])) if probs else None]
        for _, _, _, probs in columns
    ]
    top, width = 1.01 * max([one or 0.0 for column in values for one in column] + [0.05]), 1 / len(columns)
    data: list[Spec] = []
    axes: Spec = {}
    notes: list[Spec] = []
    for number, ((name, meaning, color, _), found) in enumerate(zip(columns, values, strict=True)):
        key, start = str(number + 1) if number else "", number * width
        data.append({
            "type": "bar", "orientation": "h", "xaxis": f"x{key}", "y": places,
            "x": [None if value is None else round(value, 4) for value in found],
            "text": ["" if value is None else figure_of(value) for value in found], "textposition": "outside",
            "cliponaxis": False, "textfont": {"size": 11, "color": INK}, "marker": {"color": color},
            "customdata": [*[row.node for row in rows], None], "meta": {"click": "node"},
            "hovertext": [f"{token} · {name} {'not recorded' if value is None else f'{value:.4f}'}"
                          for token, value in zip(names, found, strict=True)],
            "hovertemplate": "%{hovertext}<extra></extra>",
        })  # fmt: skip
        axes[f"xaxis{key}"] = {"domain": [start, start + 0.78 * width], "range": [0, top], "fixedrange": True,
                               "showticklabels": False, "showgrid": False, "showline": False, "zeroline": True,
                               "zerolinecolor": LINE}  # fmt: skip
        notes.append(note(f"<b>{name}</b>  {meaning}", start, 1))
    # Tokens and what is said of them stand in two columns, for the font is monospaced.
    room = max([len(_SIGNS.get(row.verdict, "") + row.said) for row in rows], default=0)
    wide = round(7.3 * (room + 3 + max([markup.width(html.unescape(name)) for name in names]))) + 8
    for place, row in enumerate([*rows, Row(0)]):
        sign = _SIGNS.get(row.verdict, "")
        colored = f'<span style="color:{LOOKS[row.verdict].color}">{sign}</span>' if sign else ""
        named = f"<b>{names[place]}</b>" if row.strong else names[place]
        names[place] = named + "\u00a0" * (2 if room else 0) + colored + row.said
        names[place] += "\u00a0" * (room - len(sign + row.said))
    axes["yaxis"] = {
        "range": [len(rows) + 0.6, -0.6], "tickvals": places, "ticktext": names, "fixedrange": True, "showgrid": False,
        "tickfont": {"size": 12, "family": PLOT_MONO, "color": INK},
    }  # fmt: skip
    return spec(
        data, label=label, height=56 + 22 * len(rows), margin={"l": wide, "r": 8, "t": 28, "b": 6}, bargap=0.3,
        annotations=notes, dragmode=False, meta={"name": view}, uirevision=view, **axes,
    )  # fmt: skip


def figure_of(probability: float) -> str:
    """`0.42`; small ones keep a digit."""
    return f"{probability:.2f}" if probability >= 0.01 or not probability else f"{probability:.1g}"


# The distributions after a node


def node_spec(step: Step, node: int) -> Spec:
    """What target and draft held most probable after a node, the same tokens in one row; which of them were drafted."""
    record = step.nodes[node]
    target, draft = dict(record.target_top), dict(record.draft_top)
    children = {int(step.tree.token[child]): child for child in reversed(step.tree.children[node])}
    for token, child in children.items():
        draft.setdefault(token, step.nodes[child].draft_prob)
        if (probability := step.nodes[child].target_prob) is not None:
            target.setdefault(token, probability)
    must = {*children, record.target_choice}
    ordered = sorted({*target, *draft, *must}, key=lambda token: (-target.get(token, 0.0), -draft.get(token, 0.0)))
    kept = must | {*[token for token in ordered if token not in must][: max(MOST - len(must), 3)]}
    rows = []
    for token in [token for token in ordered if token in kept]:
        under, chosen = children.get(token), token == record.target_choice
        verdict = "" if under is None else step.nodes[under].verdict
        said = ["" if under is None else f"node {under}", "★ chosen" if chosen else ""]
        rows.append(Row(token, verdict, " ".join(filter(None, said)), under, chosen))
    gone = "after this node" if draft else "not recorded: this node was not expanded"
    columns = Column("target p", "after this node", TARGET, target), Column("draft q", gone, DRAFT, draft)
    return bars_spec(step, columns, rows, label=why(step, node), view=f"node-{node}")


# Where sampling stopped


class Draw(NamedTuple):
    """Distributions of the recorded tokens before a child is tried; `trial` is None for the target's own draw.

    `scaled`: they follow from the record only up to a factor, and are scaled to add up to 1.
    """

    trial: Trial | None
    p: Probs
    q: Probs
    scaled: bool = False


def draws(step: Step) -> tuple[Draw, ...]:
    """The trials of the node where sampling stopped, in order, then the target's draw; empty where it drew nothing."""
    left = step.residual
    if left is None:
        return ()
    p = {one.token: one.target for one in left.tokens}
    q = {one.token: one.draft for one in left.tokens if one.draft is not None}
    final = {one.token: one.residual for one in left.tokens}
    if typical(step) or not q or not left.trials:
        return (*(Draw(trial, p, q) for trial in left.trials), Draw(None, p, q))
    found, scaled = [], False
    for place, trial in enumerate(left.trials):
        found.append(Draw(trial, p, q, scaled))
        token = int(step.tree.token[trial.node])
        known = [(int(step.tree.token[one.node]), one.target) for one in left.trials[place + 1 : place + 2]]
        p, scaled = _residual(p, q, known[0] if known else None)
        if step.rule == "draws without replacement" and trial.against < 1:
            q = {one: 0.0 if one == token else value / (1 - trial.against) for one, value in q.items()}
    return (*found, Draw(None, final, {}))


def _residual(p: Probs, q: Probs, known: tuple[int, float] | None) -> tuple[Probs, bool]:
    """norm(max(p - q, 0)) of the recorded tokens; what the others have follows from one `known` value, if it is > 0."""
    rest = {token: max(value - q.get(token, 0.0), 0.0) for token, value in p.items()}
    mass = sum(rest.values())
    if known and known[1] > 0 and rest.get(known[0], 0.0) > 0:
        return {token: min(1.0, value * known[1] / rest[known[0]]) for token, value in rest.items()}, False
    return {token: value / mass if mass else p[token] for token, value in rest.items()}, bool(mass)


def _residual_spec(step: Step, left: Residual, draw: int | None) -> Spec:
    """The target's distribution, the draft's, and what is left to draw from, a row per token.

    After `draw` children were tried, the columns are of what was left before the last of them, and after it; after all
    (None), from the whole distributions to the token drawn.
    """
    found, candidates, lossy = draws(step), _candidates(step, left), typical(step)
    over = draw is None or draw >= len(found)
    tried = len(found) - 1 if draw is None else min(draw, len(found) - 1)
    place = 0 if draw is None else max(tried - 1, 0)
    before, since = found[place], f"after {plural(place, 'rejection')}" if place else ""
    columns = [Column("target p", since or "its distribution", TARGET, before.p)]
    if before.q:
        columns.append(Column("draft q", since or "gave the candidates", DRAFT, before.q))
    if tried or over:
        what = "max(0, p − q), scaled to 1" if before.q else "p without the candidates, scaled to 1"
        after = found[tried].p if tried < len(left.trials) else {one.token: one.residual for one in left.tokens}
        columns.append(Column("residual", "the same: it draws from its own" if lossy else what, LEFT, after))
    rejected = {int(step.tree.token[one.trial.node]) for one in found[:tried] if one.trial}
    must = {*candidates} | ({step.bonus} if step.bonus is not None else set())
    others = sorted(left.tokens, key=lambda one: -max(one.target, one.residual))
    kept = must | {*[one.token for one in others if one.token not in must][: max(MOST - len(must), 0)]}
    rows = []
    for token in [one.token for one in left.tokens if one.token in kept]:
        mark = ("", "")
        if drawn := over and token == step.bonus:
            mark = ("", "★ drawn")
        elif token in rejected:
            mark = ("rejected", "rejected")
        elif token in candidates:
            mark = ("drafted" if left.trials else "rejected", "candidate")
        rows.append(Row(token, *mark, candidates.get(token), drawn))
    said = f"Iteration {step.index + 1}, {where(step)}. Rule: {step.rule}. {residual_sentence(step)}"
    return bars_spec(step, columns, rows, label=said, view=f"residual-{step.index + 1}")


def where(step: Step) -> str:
    """The place where sampling stopped, in words."""
    node = step.residual.node if step.residual else None
    return "before the root" if node is None else f"after node {node} {quoted(step.nodes[node].token, step.texts)}"


def residual_sentence(step: Step) -> str:
    """What was tried and refused, and what the target drew; empty where nothing was drawn."""
    left, lossy = step.residual, typical(step)
    if left is None or step.bonus is None:
        return ""

    def tested(one: Trial) -> str:
        child, p, least = quoted(int(step.tree.token[one.node]), step.texts), figure_of(one.target), one.against
        if lossy:
            return f"{child} has {p}, not above the threshold {figure_of(least)}: rejected"
        ratio = f"{p} / {figure_of(least)} = {figure_of(_ratio(one))}"
        return f"{child} would be accepted with probability {ratio}: rejected"

    token, candidates = quoted(step.bonus, step.texts), _candidates(step, left)
    drawn = next((one for one in left.tokens if one.token == step.bonus), TokenProb(step.bonus, 0.0, 0.0, None))
    p, rest = figure_of(drawn.target), figure_of(drawn.residual)
    own, tried = f"sampled {token} from its own distribution", [tested(one) for one in left.trials]
    if tried and not lossy:
        return (
            f"The draft's {'; then '.join(tried)}. The target sampled {token} from the residual, where it has {rest}."
        )
    if tried:
        return f"{'; '.join(tried)}. The target {own}, where it has {p}."
    if not candidates:
        return f"There was no candidate {where(step)}: the target {own} (p = {p})."
    named = " or ".join([quoted(one, step.texts) for one in candidates])
    mass = figure_of(sum([one.target for one in left.tokens if one.token in candidates]))
    return (
        f"The target sampled {token} (p = {p}). A candidate, {named}, would have come with {mass} in all; given that "
        f"none did, {token} has {rest}."
    )


def _ratio(one: Trial) -> float:
    return min(1.0, one.target / one.against) if one.against else 1.0


def _candidates(step: Step, left: Residual) -> dict[int, int]:
    """The children's tokens that are recorded, each with its node, in the order in which they were tried."""
    nodes = (0,) if left.node is None else step.tree.children[left.node]
    recorded = {one.token for one in left.tokens}
    found = {int(step.tree.token[node]): node for node in reversed(nodes)}
    return {token: node for token, node in reversed(found.items()) if token in recorded}


def _trials_table(step: Step, draw: int | None) -> str:
    """The draws in order, a row each: candidate, p, q, threshold, outcome; then the token that the target drew."""
    lossy = typical(step)
    rows: list[tuple[object, ...]] = []
    for place, (trial, p, _, _) in enumerate(draws(step)[:draw], 1):
        if trial is not None:
            token = f"{label(int(step.tree.token[trial.node]), step.texts, 24)} (node {trial.node})"
            q, least = ("–", trial.against) if lossy else (f"{trial.against:.4f}", _ratio(trial))
            rows.append((place, token, f"{trial.target:.4f}", q, f"{least:.4f}", "rejected"))
        elif step.bonus is not None:
            known = f"{p[step.bonus]:.4f}" if step.bonus in p else "–"
            rows.append((place, label(step.bonus, step.texts, 24), known, "–", "–", "drawn by the target"))
    head = ("draw", "candidate", "p left", "q left", "threshold" if lossy else "min(1, p / q)", "outcome")
    return markup.table(f"Draws {where(step)}, in order", head, rows)


def residual_parts(step: Step, draw: int | None = None) -> list[Part]:
    """The rule, the sentence, the draws and the bars; empty where nothing was sampled.

    Args:
        draw: draws shown; by default all.
    """
    if step.residual is None:
        return []
    lossy, found = step_words(step), draws(step)
    said = residual_sentence(step)
    if draw is not None and draw < len(found):
        said = f"{plural(draw, 'draw')} of {len(found)}."
    lacks = "The random numbers are not recorded, only what came of them"
    if any(one.scaled for one in found):
        lacks += "; the residual between two draws is scaled so that the tokens recorded add up to 1"
    words = [
        labelled("Rule", f"{step.rule or 'not recorded'}."),
        markup.tag("p", warning(f"{lossy}.")) if lossy else "",
        labelled("Where sampling stopped", said),
        _trials_table(step, draw),
        markup.tag("p", markup.escape(f"{lacks}."), class_="sl-note"),
    ]
    return [markup.tag("div", *words, class_="speclab-residual"), _residual_spec(step, step.residual, draw)]


# The tab


def node_parts(step: Step, selected: int | None, draw: int | None = None) -> list[Part]:
    """Why the node was accepted or not, both distributions after it, the draws where sampling stopped, its facts."""
    if selected is None or selected >= len(step.nodes):
        return [markup.tag("div", UNSELECTED, class_="sl-empty")]
    parts: list[Part] = [markup.tag("p", linked(why(step, selected)), class_="sl-why"), node_spec(step, selected)]
    if step.residual is not None and (step.residual.node or 0) == selected:
        parts += residual_parts(step, draw)
    elif step.rule not in {"", "greedy"} and step.tree.children[selected]:
        parts.append(_outcomes(step, selected))
    return [*parts, node_table(step, selected)]


def _outcomes(step: Step, node: int) -> str:
    """What the record knows of a node's children where sampling did not stop: each one's outcome, with its reason."""
    rows = [
        (child.index, label(child.token, step.texts, 24), f"{child.target_prob or 0:.4f}", f"{child.draft_prob:.4f}",
         child.verdict, child.reason)
        for child in [step.nodes[child] for child in step.tree.children[node]]
    ]  # fmt: skip
    head = ("node", "candidate", "target p", "draft q", "outcome", "reason")
    unknown = "Sampling went on after this node: distributions between its draws are not recorded."
    if step.rule == "sample and match":
        unknown = "The target sampled once after this node: a child is accepted if it carries that token."
    said = markup.tag("p", markup.escape(unknown), class_="sl-note")
    return markup.tag("div", markup.table(f"Children of node {node} ({step.rule})", head, rows), said)
