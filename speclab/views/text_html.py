"""The text so far, token by token: each token's origin, rejected candidates, and where iterations
begin.

Each kind of token has its own tint and underline. Byte tokens are joined to characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from speclab.trace.records import Step, Trace
from speclab.views.phases import decisions, own_kind
from speclab.views.sentences import prompt_words
from speclab.views.theme import LOOKS
from speclab.views.tokens import display, label, plural
from speclab.views.words import WORDS, fill

HEAD = TAIL = 48
"""Tokens of a long prompt shown before and after the gap."""
_BYTES = re.compile(r"((?:<0x[0-9A-Fa-f]{2}>)+)")


@dataclass(slots=True)
class Piece:
    """A token of the text; `iteration` counts from 1, 0 is the prompt.

    `kind`: prompt, role, template, first, accepted, bonus, corrected or rejected.
    """

    text: str
    kind: str
    iteration: int
    token: int
    title: str = ""


def text_pieces(run: Trace, cursor: int | None = None) -> list[list[Piece]]:
    """The prompt and the first token, then the pieces of each step up to `cursor`."""
    texts = run.texts
    whole: list[tuple[str | None, int, int]] = [(None, 0, len(run.prompt_ids))]
    prompt = []
    for role, start, stop in run.prompt_parts() or whole:
        kind = "prompt" if role is None else "role" if role else "template"
        for token in run.prompt_ids[start:stop]:
            prompt.append(Piece(texts.get(token, f"#{token}"), kind, 0, token, role or ""))
    token = run.first_token
    first = Piece(texts.get(token, f"#{token}"), "first", 0, token, WORDS["text"]["first"])
    lists = [[*prompt, first], *map(_step_pieces, run.steps[:cursor])]
    written = [piece for pieces in lists for piece in pieces if piece.kind != "rejected"]
    for piece, text in zip(written, joined([piece.text for piece in written]), strict=True):
        piece.text = text
    return lists


def _step_pieces(step: Step) -> list[Piece]:
    """The tokens of an iteration, before a correction the rejected candidates."""
    number = step.index + 1
    taken = decisions(step)
    pieces = []
    for place, token in enumerate(step.committed):
        node = step.accepted[place] if place < len(step.accepted) else None
        kind = own_kind(step) if node is None else "accepted"
        losers = taken[place].candidates if kind == "corrected" and place < len(taken) else ()
        for loser in losers:
            struck = step.nodes[loser].token
            pieces.append(Piece(step.texts[struck], "rejected", number, struck))
        source = "target" if node is None else step.tree.source[node]
        values = {"token": token, "source": source, "number": number}
        title = fill("text", kind, values, step.texts)
        pieces.append(Piece(step.texts.get(token, f"#{token}"), kind, number, token, title))
    return pieces


def joined(texts: Sequence[str]) -> list[str]:
    """Texts with byte tokens joined to characters; a byte stays `<0xE2>` where it forms none.

    A character stands where its last byte is.
    """
    result = [""] * len(texts)
    run: list[tuple[int, int]] = []  # index of the text, byte

    def flush() -> None:
        while run:
            size = _sequence(bytes([byte for _, byte in run[:4]]))
            part = run[: size or 1]
            del run[: size or 1]
            last, byte = part[-1]
            char = bytes([byte for _, byte in part]).decode() if size else f"<0x{byte:02X}>"
            result[last] += char

    for index, text in enumerate(texts):
        for part in _BYTES.split(text):
            if part.startswith("<0x") and _BYTES.fullmatch(part):
                codes = part[3:-1].split("><0x")
                run += [(index, int(code, 16)) for code in codes]
            elif part:
                flush()
                result[index] += part
    flush()
    return result


def _sequence(start: bytes) -> int:
    """How many of the first bytes form a character of UTF-8; 0 if they form none."""
    for size in range(1, len(start) + 1):
        try:
            start[:size].decode()
        except UnicodeDecodeError:
            continue
        return size
    return 0


def text_html(run: Trace, cursor: int | None = None) -> str:
    """The prompt and the text of `cursor` iterations, with a legend of the kinds that occur."""
    steps = run.steps[:cursor]
    prompt, *lists = text_pieces(run, cursor)
    body = _prompt(prompt)
    for step, pieces in zip(steps, lists, strict=True):
        gained = f"iteration {step.index + 1}: {plural(len(step.committed), 'token')} gained"
        body += (
            f'<span class="sl-mark" data-iteration="{step.index + 1}" title="{gained}">'
            f"{step.index + 1}<b>+{len(step.committed)}</b></span>"
        )
        losers = [piece for piece in pieces if piece.kind == "rejected"]
        for piece in pieces:
            if losers and piece is losers[0]:
                body += _struck(losers)
            elif piece.kind != "rejected":
                body += _token(piece)
    generated = f"{len(run.tokens_at(len(steps)))} generated in {plural(len(steps), 'iteration')}"
    sentence = escape(f"Text: {prompt_words(run)}, then {generated}.")
    kinds = dict.fromkeys(piece.kind for pieces in lists for piece in pieces)
    return (
        f'<div class="speclab-text">{_legend([*kinds])}'
        f'<div class="sl-body" dir="auto" role="document" aria-label="{sentence}">{body}</div></div>'
    )


def _legend(kinds: Sequence[str]) -> str:
    entries = ['<span class="sl-t sl-first">first token</span>']
    for kind in kinds:
        if kind == "rejected":
            entries.append('<span><span class="sl-x">×2</span> rejected, click to unfold</span>')
        else:
            entries.append(f'<span class="sl-t sl-{kind}">{LOOKS[kind].label}</span>')
    entries.append('<span><span class="sl-mark">3<b>+5</b></span> iteration, tokens gained</span>')
    return f'<div class="sl-legend">{" ".join(entries)}</div>'


def _prompt(pieces: Sequence[Piece]) -> str:
    """The prompt, shortened in the middle if it is long, and the first token."""
    *prompt, first = pieces
    shown = "".join(map(_prompt_token, prompt))
    hidden = len(prompt) - HEAD - TAIL
    if hidden > 16:
        ends = ["".join(map(_prompt_token, part)) for part in (prompt[:HEAD], prompt[-TAIL:])]
        shown = f'{ends[0]}<span class="sl-gap">… {hidden} tokens …</span>{ends[1]}'
    return f'<span class="sl-p">{shown}</span>{_token(first)}'


def _prompt_token(piece: Piece) -> str:
    words = _readable(piece)
    if piece.kind == "role":
        title = f"{escape(display(piece.title))} message"
        return f'<span class="sl-role" title="{title}">{words}</span>'
    if piece.kind == "template":  # on one line: a reader does not need the template's line breaks
        words = words.replace("\n", "")
        return f'<span class="sl-template" title="written by the chat template">{words}</span>'
    return words


def _struck(losers: Sequence[Piece]) -> str:
    """The rejected candidates: folded to their number, struck out when unfolded."""
    words = "".join([f"<s>{escape(display(piece.text))}</s>" for piece in losers])
    title = escape(f"{plural(len(losers), 'candidate')} rejected here")
    return (
        f'<span class="sl-x" tabindex="0" title="{title}">×{len(losers)}'
        f'<span class="sl-fold">{words}</span></span>'
    )


def _token(piece: Piece) -> str:
    body = _readable(piece)
    gap = " " if body.startswith(" ") else ""  # outside the tint, so lines break cleanly
    return (
        f'{gap}<span class="sl-t sl-{piece.kind}" title="{escape(piece.title)}">'
        f"{body.removeprefix(' ')}</span>"
    )


def _readable(piece: Piece) -> str:
    """A readable token: spaces stay, a line break is shown and made, hidden characters get a code."""
    if not piece.text:  # a byte of a character that a later token ends
        return ""
    if not piece.text.strip(" "):
        return escape(label(piece.token, {piece.token: piece.text}))
    words = [display(word) if word else "" for word in piece.text.split(" ")]
    return escape(" ".join(words)).replace("⏎", "⏎\n")
