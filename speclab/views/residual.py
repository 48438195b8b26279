"""Where sampling stopped: what the target and the draft gave the tokens there, and what was left to draw from."""

from __future__ import annotations

from collections.abc import Sequence

from speclab.trace.records import Residual, Step, TokenProb, Trial
from speclab.views import markup
from speclab.views.explain import plural, step_words, warning
from speclab.views.markup import label, labelled, quoted
from speclab.views.palette import SOURCE_COLORS, Theme, css

MOST = 10
"""Tokens drawn: the candidates, the token drawn, and the most probable besides."""
ROW, NAME, NOTE, BAR, FIGURE, LEFT = 20.0, 94.0, 74.0, 90.0, 46.0, 4.0
TOP = 44.0


def where(step: Step) -> str:
    """The place where sampling stopped, in words."""
    node = step.residual.node if step.residual else None
    return "before the root" if node is None else f"after node {node} {quoted(step.nodes[node].token, step.texts)}"


def sentence(step: Step) -> str:
    """What was tried and refused, and what the target drew; empty where nothing was drawn."""
    left = step.residual
    if left is None or step.bonus is None:
        return ""
    drawn = _share(left, step.bonus)
    candidates = _candidates(step, left)
    token = quoted(step.bonus, step.texts)
    if left.trials and not step.counts.lossy:
        tried = "; then ".join([_tested(step, one) for one in left.trials])
        own = f"The target sampled {token} from the residual, where it has {_figure(drawn.residual)}."
        return f"The draft's {tried}. {own}"
    if left.trials:
        tried = "; ".join([_too_unlikely(step, one) for one in left.trials])
        return f"{tried}. The target sampled {token} from its own distribution, where it has {_figure(drawn.target)}."
    if not candidates:
        own = f"the target sampled {token} from its own distribution (p = {_figure(drawn.target)})"
        return f"There was no candidate {where(step)}: {own}."
    named = " or ".join([quoted(share.token, step.texts) for share in candidates])
    mass = sum([share.target for share in candidates])
    return (
        f"The target sampled {token} (p = {_figure(drawn.target)}). A candidate, {named}, would have come "
        f"with {_figure(mass)} in all; given that none did, {token} has {_figure(drawn.residual)}."
    )


def _tested(step: Step, one: Trial) -> str:
    token = quoted(int(step.tree.token[one.node]), step.texts)
    quotient = one.target / one.against if one.against else 1.0
    ratio = f"{_figure(one.target)} / {_figure(one.against)} = {_figure(quotient)}"
    return f"{token} would be accepted with probability {ratio}: rejected"


def _too_unlikely(step: Step, one: Trial) -> str:
    token = quoted(int(step.tree.token[one.node]), step.texts)
    return f"{token} has {_figure(one.target)}, not above the threshold {_figure(one.against)}: rejected"


def _figure(probability: float) -> str:
    return f"{probability:.2f}" if probability >= 0.01 else f"{probability:.1g}"


def _share(left: Residual, token: int) -> TokenProb:
    return next((share for share in left.tokens if share.token == token), TokenProb(token, 0.0, 0.0, None))


def _candidates(step: Step, left: Residual) -> list[TokenProb]:
    nodes = (0,) if left.node is None else step.tree.children[left.node]
    tokens = {int(step.tree.token[node]) for node in nodes}
    return [share for share in left.tokens if share.token in tokens]


def residual_html(step: Step) -> str:
    """The rule, the sentence, and the bars; empty where nothing was sampled."""
    if step.residual is None:
        return ""
    lossy = step_words(step)
    rule = labelled("Rule", f"{step.rule or 'not recorded'}.")
    words = [
        rule,
        markup.tag("p", warning(f"{lossy}.")) if lossy else "",
        labelled("Where sampling stopped", sentence(step)),
    ]
    return markup.tag("div", *words, residual_svg(step), class_="speclab-residual")


def shown(step: Step, left: Residual) -> list[TokenProb]:
    """The tokens drawn as bars, in the order of the record."""
    must = {share.token for share in _candidates(step, left)} | ({step.bonus} if step.bonus is not None else set())
    others = [share for share in left.tokens if share.token not in must]
    others.sort(key=lambda share: -max(share.target, share.residual))
    kept = must | {share.token for share in others[: max(MOST - len(must), 0)]}
    return [share for share in left.tokens if share.token in kept]


def residual_svg(step: Step) -> str:
    """One row per token; a bar each for target, draft and what was left, all on one scale from 0 to 1."""
    colors, left = css(), step.residual
    if left is None:
        text = markup.text("the target sampled nothing here", 12, 24, style=f"fill:{colors.muted}")
        return markup.svg(300, 40, "No residual: the target sampled nothing here.", colors, [text])
    rows = shown(step, left)
    distributions = _distributions(rows)
    parts = [_heads(distributions, colors)]
    parts += [
        _row(step, left, share, [probs[3][i] for probs in distributions], TOP + ROW * i, colors)
        for i, share in enumerate(rows)
    ]
    hidden = len(left.tokens) - len(rows)
    bottom = TOP + ROW * len(rows)
    if hidden:
        note = f"not drawn: {plural(hidden, 'less likely token')} of the record"
        parts.append(markup.text(note, LEFT, bottom + 12, style=f"fill:{colors.muted};font-size:10px"))
    wide = LEFT + NAME + NOTE + (BAR + FIGURE) * len(distributions)
    label = f"Iteration {step.index + 1}, {where(step)}. Rule: {step.rule}. {sentence(step)}"
    return markup.svg(wide, bottom + (20 if hidden else 6), label, colors, parts)


def _distributions(rows: Sequence[TokenProb]) -> list[tuple[str, str, str, list[float | None]]]:
    """Name, meaning, colour and values of the distributions there are."""
    distributions: list[tuple[str, str, str, list[float | None]]] = [
        ("target p", "its distribution", SOURCE_COLORS[0], [share.target for share in rows])
    ]
    if any(share.draft is not None for share in rows):
        distributions.append(("draft q", "gave the candidates", SOURCE_COLORS[1], [share.draft for share in rows]))
    distributions.append(("residual", "max(0, p − q)", SOURCE_COLORS[2], [share.residual for share in rows]))
    return distributions


def _heads(distributions: Sequence[tuple[str, str, str, list[float | None]]], colors: Theme) -> str:
    parts = []
    for i, (name, meaning, _, _) in enumerate(distributions):
        x = LEFT + NAME + NOTE + (BAR + FIGURE) * i
        parts.append(markup.text(name, x, 16, style="font-weight:600"))
        parts.append(markup.text(meaning, x, 30, style=f"fill:{colors.muted};font-size:10px"))
    return "".join(parts)


def _row(step: Step, left: Residual, share: TokenProb, values: Sequence[float | None], y: float, colors: Theme) -> str:
    drawn, tried = share.token == step.bonus, share.token in {one.token for one in _candidates(step, left)}
    kind, note = ("bonus", "drawn") if drawn else ("rejected", "candidate") if tried else ("", "")
    weight = "font-weight:600" if drawn else f"fill:{colors.ink}"
    parts = [markup.text(label(share.token, step.texts, 13), LEFT, y + 12, style=f"font-family:monospace;{weight}")]
    if kind:
        parts.append(markup.shape(kind, LEFT + NAME + 6, y + 8, 4.5, 0.8, colors))
        parts.append(markup.text(note, LEFT + NAME + 16, y + 12, style=f"fill:{colors.muted};font-size:10px"))
    for i, (value, color) in enumerate(zip(values, _colors(len(values)), strict=True)):
        x = LEFT + NAME + NOTE + (BAR + FIGURE) * i
        parts.append(
            markup.tag("path", d=f"M{markup.number(x)} {markup.number(y + 1)}v14", style=f"stroke:{colors.line}")
        )
        if value:
            box = {"x": x, "y": y + 2, "width": max(BAR * value, 0.5), "height": 12.0}
            parts.append(markup.tag("rect", **box, style=f"fill:{color}"))
        figure = "–" if value is None else _figure(value)
        parts.append(markup.text(figure, x + BAR * (value or 0) + 5, y + 12))
    tip = f"{quoted(share.token, step.texts)} · target {share.target:.4f} · left {share.residual:.4f}"
    return markup.tag("g", markup.title(tip if share.draft is None else f"{tip} · draft {share.draft:.4f}"), *parts)


def _colors(count: int) -> tuple[str, ...]:
    return SOURCE_COLORS[:3] if count == 3 else (SOURCE_COLORS[0], SOURCE_COLORS[2])


def table(step: Step) -> str:
    """Every token of the record, as an HTML table; empty where nothing was sampled."""
    left = step.residual
    if left is None:
        return ""
    rows = (
        (label(share.token, step.texts), f"{share.target:.4f}",
         "–" if share.draft is None else f"{share.draft:.4f}", f"{share.residual:.4f}",
         "drawn" if share.token == step.bonus else "")
        for share in left.tokens
    )  # fmt: skip
    caption = f"Where sampling stopped in iteration {step.index + 1}, {where(step)} ({step.rule})"
    return markup.table(caption, ("token", "target p", "draft q", "left", ""), rows)
