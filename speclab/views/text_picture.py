"""The text as a picture that stands alone: the tokens of `text`, in rows of a fixed width, for papers and slides."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from speclab.trace.records import Trace
from speclab.views import markup, tokens
from speclab.views.palette import LOOKS, MONO, Theme, ThemeName, css
from speclab.views.text import prompt_tokens, shown_tokens, summary

COLUMNS, SIZE, ROW, PAD = 100, 13, 26.0, 12.0
ADVANCE = 0.6 * SIZE
"""Width of a column. Fonts differ: each token is told its length, so that the tints fit."""
_LINES = {"accepted": ("", 2.0), "bonus": ("", 4.0), "corrected": ("4 3", 2.0), "first": ("1.5 2", 2.0)}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of one row. `kind`: of a token, "prompt", or "mark" for the beginning of an iteration."""

    words: str
    kind: str
    ends: bool = False

    @property
    def columns(self) -> int:
        """What it takes of a row; a mark is set smaller."""
        return tokens.width(self.words) + 1 if self.kind == "mark" else tokens.width(self.words)


def text_svg(trace: Trace, cursor: int | None = None, theme: ThemeName = "light") -> str:
    """The prompt and `cursor` iterations of text as one SVG string, coloured by verdict."""
    colors, parts, row, column = css(theme), [], 0, 0
    for piece in _pieces(trace, cursor):
        with_its_token = 8 if piece.kind == "mark" else 0  # a mark does not end a row
        if column and column + piece.columns + with_its_token > COLUMNS:
            row, column = row + 1, 0
        parts.append(_draw(piece, PAD + column * ADVANCE, PAD + row * ROW, colors))
        row, column = (row + 1, 0) if piece.ends else (row, column + piece.columns)
    rows = row + (column > 0)
    key = _legend(PAD + rows * ROW + 22, colors)
    return markup.svg(2 * PAD + COLUMNS * ADVANCE, PAD + rows * ROW + 38, summary(trace, cursor), colors, [*parts, key])


def _pieces(trace: Trace, cursor: int | None) -> Iterator[_Piece]:
    texts = ChainMap(*(dict(texts) for texts in (trace.texts, *(step.texts for step in trace.steps[:cursor]))))
    for token in prompt_tokens(trace):
        yield _Piece(token, "prompt") if isinstance(token, str) else _piece(token, "prompt", texts)
    for item in shown_tokens(trace, cursor):
        if item.starts is not None:
            yield _Piece(f"{item.iteration}+{len(item.starts.committed)}", "mark")
        yield _piece(item.token, item.kind, texts)


def _piece(token: int, kind: str, texts: Mapping[int, str]) -> _Piece:
    words = tokens.clip(tokens.label(token, texts), COLUMNS)
    return _Piece(words, kind, words.endswith("⏎"))


def _draw(piece: _Piece, x: float, y: float, colors: Theme) -> str:
    if piece.kind == "mark":
        style = f"font:9px {MONO};fill:{colors.muted}"
        return markup.text(piece.words, x + 3, y + 8, style=style) + _rule(x + 1, y + 2, colors)
    shown = piece.words[1:] if piece.words.startswith("␣") and piece.columns > 1 else piece.words  # a space is a gap
    x, wide = x + (piece.columns - tokens.width(shown)) * ADVANCE, tokens.width(shown) * ADVANCE
    length = {"textLength": wide, "lengthAdjust": "spacingAndGlyphs"}
    ink = colors.muted if piece.kind == "prompt" else colors.ink
    words = markup.tag(
        "text", tokens.escape(shown), x=x, y=y + 14, style=f"font:{SIZE}px {MONO};fill:{ink}",
        **length,
    )  # fmt: skip
    return _tint(piece.kind, x, y, wide - 1, colors) + words


def _tint(kind: str, x: float, y: float, wide: float, colors: Theme) -> str:
    if kind not in _LINES:
        return ""
    color = colors.muted if kind == "first" else LOOKS[kind].color
    dash, thick = _LINES[kind]
    ground = markup.tag("rect", x=x, y=y, width=wide, height=19.0, style=f"fill:{color};fill-opacity:.2")
    stroke = f"stroke:{color};stroke-width:{thick};stroke-dasharray:{dash or 'none'}"
    return ground + markup.tag("path", d=f"M{x:.1f} {y + 20:.1f}h{wide:.1f}", style=stroke)


def _rule(x: float, y: float, colors: Theme) -> str:
    return markup.tag("path", d=f"M{x:.1f} {y:.1f}v16", style=f"stroke:{colors.line}")


def _legend(y: float, colors: Theme) -> str:
    parts, x = [], PAD
    for kind in _LINES:
        name = "first token (prefill)" if kind == "first" else kind
        parts += [_tint(kind, x, y - 14, 18, colors), markup.text(name, x + 24, y, style=f"fill:{colors.muted}")]
        x += 46 + 6.5 * len(name)
    return "".join(parts) + markup.text("3+5: iteration, tokens gained", x, y, style=f"fill:{colors.muted}")
