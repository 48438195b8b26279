"""The text so far, token by token: each token's origin, rejected candidates, and where iterations
begin.

Every iteration is one piece of HTML, so a step adds one piece. Each kind of token has its own tint
and underline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from speclab.trace.records import Step, Trace
from speclab.views.phases import decisions, last_on_path, own_kind
from speclab.views.sentences import prompt_words
from speclab.views.theme import LOOKS
from speclab.views.tokens import display, label, percent, plural, quoted

HEAD = TAIL = 48
"""Tokens of a long prompt shown before and after the gap."""


def text_html(trace: Trace, cursor: int | None = None) -> str:
    """The prompt and the text of `cursor` iterations, with a legend."""
    steps = trace.steps[:cursor]
    pieces = "".join([prompt_piece(trace), *(text_piece(step) for step in steps)])
    generated = f"{len(trace.token_ids(len(steps)))} generated in {plural(len(steps), 'iteration')}"
    sentence = escape(f"Text: {prompt_words(trace)}, then {generated}.")
    body = f'<div class="sl-body" dir="auto" role="document" aria-label="{sentence}">{pieces}</div>'
    return f'<div class="speclab-text">{legend()}{body}</div>'


def legend() -> str:
    """Explain the tints."""
    kinds = [
        ("first", "first token"),
        *((kind, LOOKS[kind].label) for kind in ("accepted", "bonus", "corrected")),
    ]
    entries = [f'<span class="sl-t sl-{kind}">{name}</span>' for kind, name in kinds]
    entries.append('<span><span class="sl-x">×2</span> rejected, click to unfold</span>')
    entries.append('<span><span class="sl-mark">3<b>+5</b></span> iteration, tokens gained</span>')
    return f'<div class="sl-legend">{" ".join(entries)}</div>'


def prompt_piece(trace: Trace) -> str:
    """The prompt, shortened in the middle if it is long, and the first token, which comes from the prefill."""
    count = len(trace.prompt_ids)
    if count <= HEAD + TAIL + 16:
        runs = [*_prompt(trace, 0, count)]
    else:
        gap = f'<span class="sl-gap">… {count - HEAD - TAIL} tokens …</span>'
        runs = [*_prompt(trace, 0, HEAD), gap, *_prompt(trace, count - TAIL, count)]
    tip = f"{quoted(trace.first_token, trace.texts)} · id {trace.first_token} · from the prefill"
    return f'<span class="sl-p">{"".join(runs)}</span>' + _token(
        trace.first_token, trace.texts, "first", tip
    )


def _prompt(trace: Trace, first: int, last: int) -> Iterator[str]:
    parts: Sequence[tuple[str | None, int, int]] = trace.prompt_parts() or [(None, 0, last)]
    for role, start, stop in parts:
        tokens = trace.prompt_ids[max(start, first) : min(stop, last)]
        words = "".join([readable(token, trace.texts) for token in tokens])
        if role is None:
            yield words
        elif tokens and role:
            yield f'<span class="sl-role" title="{escape(display(role))} message">{words}</span>'
        elif tokens:  # on one line: a reader does not need the template's line breaks
            words = words.replace("\n", "")
            yield f'<span class="sl-template" title="written by the chat template">{words}</span>'


def text_piece(step: Step) -> str:
    """A mark with the iteration's number and gain, then its tokens."""
    number = step.index + 1
    gained = len(step.committed)
    tip = f"iteration {number}: {plural(gained, 'token')} gained"
    pieces = [
        f'<span class="sl-mark" data-iteration="{number}" title="{tip}">{number}<b>+{gained}</b></span>'
    ]
    rejected = {decision.winner: decision.candidates for decision in decisions(step)}
    nodes: list[int | None] = [*step.accepted, *[None] * gained]
    for token, node in zip(step.committed, nodes, strict=False):
        kind = "accepted" if node is not None else own_kind(step)
        source = "target" if node is None else step.tree.source[node]
        losers = [int(step.tree.token[each]) for each in rejected.get(node, ()) if each != node]
        tip = f"{quoted(token, step.texts)} · id {token} · {kind} · from {source} · iteration {number}"
        probability = _probability(step, node)
        if probability is not None:
            tip += f" · target {percent(probability)}"
        if losers:
            tip += f" · chosen over {', '.join([quoted(each, step.texts) for each in losers])}"
        if kind == "corrected" and losers:
            pieces.append(_struck(losers, step.texts))
        pieces.append(_token(token, step.texts, kind, tip))
    return "".join(pieces)


def _probability(step: Step, node: int | None) -> float | None:
    if node is not None:
        return step.nodes[node].target_prob
    last = last_on_path(step)
    return dict(step.nodes[last].target_top).get(step.bonus or 0) if last >= 0 else None


def _struck(tokens: Sequence[int], texts: Mapping[int, str]) -> str:
    """The rejected candidates: folded to their number, struck out when unfolded."""
    words = "".join([f"<s>{escape(label(token, texts))}</s>" for token in tokens])
    tip = escape(f"{plural(len(tokens), 'candidate')} rejected here")
    return f'<span class="sl-x" tabindex="0" title="{tip}">×{len(tokens)}<span class="sl-fold">{words}</span></span>'


def _token(token: int, texts: Mapping[int, str], kind: str, tip: str) -> str:
    body = readable(token, texts)
    gap = " " if body.startswith(" ") else ""  # outside the tint, so lines break cleanly
    return (
        f'{gap}<span class="sl-t sl-{kind}" title="{escape(tip)}">{body.removeprefix(" ")}</span>'
    )


def readable(token: int, texts: Mapping[int, str]) -> str:
    """A readable token: spaces stay, a line break is shown and made, hidden characters get a code."""
    raw = texts.get(token, "")
    if not raw.strip(" "):
        return escape(label(token, texts))
    words = [display(word) if word else "" for word in raw.split(" ")]
    return escape(" ".join(words)).replace("⏎", "⏎\n")
