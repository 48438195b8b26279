"""What followed a node: the distributions of draft and target, its children, and where sampling stopped each draw.

Acceptance tries the children of a node in their order (Leviathan et al. 2023; SpecInfer, Algorithm 2): one is accepted
with probability min(1, p / q); a rejection leaves the target norm(max(p - q, 0)), from which the next is judged.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speclab.trace.records import Residual, Step, TokenProb, Trial
from speclab.views import markup
from speclab.views.explain import linked, node_table, plural, step_words, warning, why
from speclab.views.figures import INK, LINE, Part, Spec, note, spec, token_text
from speclab.views.markup import label, labelled, quoted
from speclab.views.palette import LOOKS, PLOT_MONO, SOURCE_COLORS

MOST = 10
"""Tokens drawn: the candidates, the token drawn, and the most probable besides."""
UNSELECTED = "Click a node of the tree, a row of the mask, or a link in a sentence, to read what is recorded of it."
TARGET, DRAFT, LEFT = SOURCE_COLORS[:3]
Probs = dict[int, float]


# Rows of bars


@dataclass(frozen=True, slots=True)
class Row:
    """A token with a probability in each column (None: not recorded), its marks, and the node a click selects.

    `marks`: (kind of look, words); one without a look has none but words.
    """

    name: str
    values: Sequence[float | None]
    marks: Sequence[tuple[str, str]] = ()
    node: int | None = None
    strong: bool = False


def bars_spec(columns: Sequence[tuple[str, str, str]], rows: Sequence[Row], *, label: str, view: str) -> Spec:
    """Horizontal bars in columns that share their rows, all on one scale; `columns`: name, meaning, colour of each."""
    top = 1.01 * max([value for row in rows for value in row.values if value is not None] + [0.05])
    width, places = 1 / len(columns), [*range(len(rows))]
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    notes: list[dict[str, Any]] = []
    for number, (name, meaning, color) in enumerate(columns):
        key = str(number + 1) if number else ""
        values = [row.values[number] for row in rows]
        data.append({
            "type": "bar", "orientation": "h", "xaxis": f"x{key}", "y": places,
            "x": [None if value is None else round(value, 4) for value in values],
            "text": ["" if value is None else figure_of(value) for value in values], "textposition": "outside",
            "cliponaxis": False, "textfont": {"size": 11, "color": INK}, "marker": {"color": color},
            "customdata": [row.node for row in rows], "meta": {"click": "node"},
            "hovertext": [f"{row.name} · {name} {'not recorded' if value is None else f'{value:.4f}'}"
                          for row, value in zip(rows, values, strict=True)],
            "hovertemplate": "%{hovertext}<extra></extra>",
        })  # fmt: skip
        start = number * width
        axes[f"xaxis{key}"] = {"domain": [start, start + 0.78 * width], "range": [0, top], "fixedrange": True,
                               "showticklabels": False, "showgrid": False, "showline": False, "zeroline": True,
                               "zerolinecolor": LINE}  # fmt: skip
        notes.append(note(f"<b>{name}</b>  {meaning}", start, 1))
    names, wide = _names(rows)
    axes["yaxis"] = {
        "range": [len(rows) - 0.4, -0.6], "tickvals": places, "ticktext": names, "fixedrange": True, "showgrid": False,
        "tickfont": {"size": 12, "family": PLOT_MONO, "color": INK},
    }  # fmt: skip
    return spec(
        data, label=label, height=34 + 22 * len(rows), margin={"l": wide, "r": 8, "t": 28, "b": 6}, bargap=0.3,
        annotations=notes, dragmode=False, meta={"name": view}, uirevision=view, **axes,
    )  # fmt: skip


def figure_of(probability: float) -> str:
    """`0.42`; small ones keep a digit."""
    return f"{probability:.2f}" if probability >= 0.01 or not probability else f"{probability:.1g}"


def _names(rows: Sequence[Row]) -> tuple[list[str], int]:
    """Token and marks of each row in two columns, for a monospaced font, and the pixels that they take."""
    marks = [" ".join([_SYMBOLS.get(kind, ("", ""))[0] + words for kind, words in row.marks]) for row in rows]
    room = max([len(one) for one in marks], default=0)
    drawn = [
        " ".join([f'<span style="color:{_SYMBOLS[kind][1]}">{_SYMBOLS[kind][0]}</span>{words}' if kind else words
                  for kind, words in row.marks])
        for row in rows
    ]  # fmt: skip
    names = [
        (f"<b>{row.name}</b>" if row.strong else row.name) + "\u00a0" * (2 if room else 0) + mark
        + "\u00a0" * (room - len(said))
        for row, mark, said in zip(rows, drawn, marks, strict=True)
    ]  # fmt: skip
    return names, round(7.3 * (room + 3 + max([markup.width(html.unescape(row.name)) for row in rows], default=0))) + 8


_SHAPES = {"circle": "● ", "x": "✕ ", "circle-open": "○ "}
_SYMBOLS = {name: (_SHAPES[look.symbol], look.color) for name, look in LOOKS.items() if look.symbol in _SHAPES}


# The distributions after a node


def node_spec(step: Step, node: int) -> Spec:
    """What target and draft held most probable after a node, the same tokens in one row; which of them were drafted."""
    record = step.nodes[node]
    target, draft = dict(record.target_top), dict(record.draft_top)
    children = {int(step.tree.token[child]): child for child in reversed(step.tree.children[node])}
    for token, child in children.items():
        probability = step.nodes[child].target_prob
        if probability is not None:
            target.setdefault(token, probability)
        draft.setdefault(token, step.nodes[child].draft_prob)
    chosen = record.target_choice
    ordered = sorted({*target, *draft, chosen}, key=lambda token: (-target.get(token, 0.0), -draft.get(token, 0.0)))
    kept = [token for token in ordered if token in children or token == chosen]
    kept += [token for token in ordered if token not in kept][: max(MOST - len(kept), 3)]
    rows = []
    for token in [token for token in ordered if token in kept]:
        under = children.get(token)
        marks: list[tuple[str, str]] = [] if under is None else [(step.nodes[under].verdict, f"node {under}")]
        marks += [("", "★ chosen")] if token == chosen else []
        values = target.get(token), draft.get(token) if draft else None
        rows.append(Row(token_text_of(token, step), values, marks, under, token == chosen))
    rest = [
        max(0.0, 1 - sum([shown.get(token, 0.0) for token in kept])) if shown else None for shown in (target, draft)
    ]
    rows.append(Row("the rest", rest))
    columns = [
        ("target p", "after this node", TARGET),
        ("draft q", "after this node" if draft else "not recorded: this node was not expanded", DRAFT),
    ]
    return bars_spec(columns, rows, label=why(step, node), view=f"node-{node}")


def token_text_of(token: int, step: Step) -> str:
    """A token of a step for a label."""
    return token_text(markup.clip(step.texts[token], 18)) if token in step.texts else f"#{token}"


# Where sampling stopped


@dataclass(frozen=True, slots=True)
class Draw:
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
    if step.counts.lossy or not q or not left.trials:
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


def residual_spec(step: Step, draw: int | None = None) -> Spec:
    """The target's distribution, the draft's, and what is left to draw from, a row per token.

    Args:
        draw: children tried so far: the columns then are of what was left before the last of them, and after it. By
            default all, from the whole distributions to the token drawn.
    """
    left, found = step.residual, draws(step)
    if left is None:
        return spec([], label="No residual: the target sampled nothing here.", height=40)
    tried = len(found) - 1 if draw is None else min(max(draw, 0), len(found) - 1)
    over = draw is None or draw >= len(found)
    before = found[0 if draw is None else max(tried - 1, 0)]
    after = found[tried].p if tried < len(left.trials) else {one.token: one.residual for one in left.tokens}
    columns = [("target p", _of("its distribution", before, found), TARGET)]
    values: list[Mapping[int, float]] = [before.p]
    if before.q:
        columns.append(("draft q", _of("gave the candidates", before, found), DRAFT))
        values.append(before.q)
    if tried or over:
        columns.append(("residual", _left(step, before), LEFT))
        values.append(after)
    rows = []
    rejected = {int(step.tree.token[one.trial.node]): one.trial.node for one in found[:tried] if one.trial}
    candidates = _candidates(step, left)
    for one in shown(step, left):
        token, drawn = one.token, over and one.token == step.bonus
        marks = [("", "★ drawn")] if drawn else [("rejected", "rejected")] if token in rejected else []
        if not marks and token in candidates:
            marks = [("drafted" if left.trials else "rejected", "candidate")]
        shares = [each.get(token) for each in values]
        rows.append(Row(token_text_of(token, step), shares, marks, candidates.get(token), drawn))
    sums = [max(0.0, 1 - sum([each.get(one.token, 0.0) for one in shown(step, left)])) for each in values]
    rows.append(Row("the rest", sums))
    said = f"Iteration {step.index + 1}, {where(step)}. Rule: {step.rule}. {residual_sentence(step)}"
    return bars_spec(columns, rows, label=said, view=f"residual-{step.index + 1}")


def _of(whole: str, before: Draw, found: Sequence[Draw]) -> str:
    return whole if before is found[0] else f"after {plural(found.index(before), 'rejection')}"


def _left(step: Step, before: Draw) -> str:
    if step.counts.lossy:
        return "the same: it draws from its own"
    return "max(0, p − q), scaled to 1" if before.q else "p without the candidates, scaled to 1"


def where(step: Step) -> str:
    """The place where sampling stopped, in words."""
    node = step.residual.node if step.residual else None
    return "before the root" if node is None else f"after node {node} {quoted(step.nodes[node].token, step.texts)}"


def residual_sentence(step: Step) -> str:
    """What was tried and refused, and what the target drew; empty where nothing was drawn."""
    left = step.residual
    if left is None or step.bonus is None:
        return ""
    drawn = next((one for one in left.tokens if one.token == step.bonus), TokenProb(step.bonus, 0.0, 0.0, None))
    token = quoted(step.bonus, step.texts)
    if left.trials and not step.counts.lossy:
        tried = "; then ".join([_tested(step, one) for one in left.trials])
        own = f"The target sampled {token} from the residual, where it has {figure_of(drawn.residual)}."
        return f"The draft's {tried}. {own}"
    own = f"sampled {token} from its own distribution"
    if left.trials:
        tried = "; ".join([_too_unlikely(step, one) for one in left.trials])
        return f"{tried}. The target {own}, where it has {figure_of(drawn.target)}."
    candidates = _candidates(step, left)
    if not candidates:
        return f"There was no candidate {where(step)}: the target {own} (p = {figure_of(drawn.target)})."
    named = " or ".join([quoted(one, step.texts) for one in candidates])
    mass = sum([one.target for one in left.tokens if one.token in candidates])
    return (
        f"The target sampled {token} (p = {figure_of(drawn.target)}). A candidate, {named}, would have come "
        f"with {figure_of(mass)} in all; given that none did, {token} has {figure_of(drawn.residual)}."
    )


def _tested(step: Step, one: Trial) -> str:
    token = quoted(int(step.tree.token[one.node]), step.texts)
    ratio = f"{figure_of(one.target)} / {figure_of(one.against)} = {figure_of(_threshold(one))}"
    return f"{token} would be accepted with probability {ratio}: rejected"


def _threshold(one: Trial) -> float:
    return min(1.0, one.target / one.against) if one.against else 1.0


def _too_unlikely(step: Step, one: Trial) -> str:
    token = quoted(int(step.tree.token[one.node]), step.texts)
    return f"{token} has {figure_of(one.target)}, not above the threshold {figure_of(one.against)}: rejected"


def _candidates(step: Step, left: Residual) -> dict[int, int]:
    """The children's tokens that are recorded, each with its node, in the order in which they were tried."""
    nodes = (0,) if left.node is None else step.tree.children[left.node]
    recorded = {one.token for one in left.tokens}
    found = {int(step.tree.token[node]): node for node in reversed(nodes)}
    return {token: node for token, node in reversed(found.items()) if token in recorded}


def shown(step: Step, left: Residual) -> list[TokenProb]:
    """The tokens drawn as bars, in the order of the record."""
    must = {*_candidates(step, left)} | ({step.bonus} if step.bonus is not None else set())
    others = [one for one in left.tokens if one.token not in must]
    others.sort(key=lambda one: -max(one.target, one.residual))
    kept = must | {one.token for one in others[: max(MOST - len(must), 0)]}
    return [one for one in left.tokens if one.token in kept]


def trials_table(step: Step, draw: int | None = None) -> str:
    """The draws in order, a row each: candidate, p, q, threshold, outcome; then the token that the target drew."""
    left, found = step.residual, draws(step)
    if left is None:
        return ""
    typical = step.counts.lossy > 0
    rows: list[tuple[object, ...]] = []
    for place, one in enumerate(found[:draw]):
        if one.trial is not None:
            trial = one.trial
            token = f"{label(int(step.tree.token[trial.node]), step.texts, 24)} (node {trial.node})"
            least = trial.against if typical else _threshold(trial)
            p_and_q = (f"{trial.target:.4f}", "–" if typical else f"{trial.against:.4f}")
            rows.append((place + 1, token, *p_and_q, f"{least:.4f}", "rejected"))
        elif step.bonus is not None:
            token, probability = label(step.bonus, step.texts, 24), one.p.get(step.bonus)
            known = "–" if probability is None else f"{probability:.4f}"
            rows.append((place + 1, token, known, "–", "–", "drawn by the target"))
    head = ("draw", "candidate", "p left", "q left", "threshold" if typical else "min(1, p / q)", "outcome")
    return markup.table(f"Draws {where(step)}, in order", head, rows)


def not_recorded(step: Step) -> str:
    """What of the draws the record does not hold."""
    said = "The random numbers are not recorded, only what came of them"
    if any(one.scaled for one in draws(step)):
        said += "; the residual between two draws is scaled so that the tokens recorded add up to 1"
    return f"{said}."


def residual_parts(step: Step, draw: int | None = None) -> list[Part]:
    """The rule, the sentence, the draws and the bars; empty where nothing was sampled."""
    if step.residual is None:
        return []
    lossy = step_words(step)
    whole = draw is None or draw >= len(draws(step))
    said = residual_sentence(step) if whole else f"{plural(draw or 0, 'draw')} of {len(draws(step))}."
    words = [
        labelled("Rule", f"{step.rule or 'not recorded'}."),
        markup.tag("p", warning(f"{lossy}.")) if lossy else "",
        labelled("Where sampling stopped", said),
        trials_table(step, draw),
        markup.tag("p", markup.escape(not_recorded(step)), class_="sl-note"),
    ]
    return [markup.tag("div", *words, class_="speclab-residual"), residual_spec(step, draw)]


# The tab


def node_parts(step: Step, selected: int | None, draw: int | None = None) -> list[Part]:
    """Why the node was accepted or not, both distributions after it, the draws where sampling stopped, its facts."""
    if selected is None or selected >= len(step.nodes):
        return [markup.tag("div", UNSELECTED, class_="sl-empty")]
    left = step.residual
    stopped = left is not None and (left.node or 0) == selected
    parts: list[Part] = [markup.tag("p", linked(why(step, selected)), class_="sl-why"), node_spec(step, selected)]
    if step.rule not in {"", "greedy"} and not stopped:
        parts.append(_outcomes(step, selected))
    return [*parts, *(residual_parts(step, draw) if stopped else []), node_table(step, selected)]


def _outcomes(step: Step, node: int) -> str:
    """What the record knows of a node's children where sampling did not stop: each one's outcome, with its reason."""
    children = [step.nodes[child] for child in step.tree.children[node]]
    if not children:
        return ""
    rows = [
        (child.index, label(child.token, step.texts, 24), f"{child.target_prob or 0:.4f}", f"{child.draft_prob:.4f}",
         child.verdict, child.reason)
        for child in children
    ]  # fmt: skip
    head = ("node", "candidate", "target p", "draft q", "outcome", "reason")
    unknown = "Sampling went on after this node: distributions between its draws are not recorded."
    if step.rule == "sample and match":
        unknown = "The target sampled once after this node: a child is accepted if it carries that token."
    said = markup.tag("p", markup.escape(unknown), class_="sl-note")
    return markup.tag("div", markup.table(f"Children of node {node} ({step.rule})", head, rows), said)
