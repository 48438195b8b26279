"""What the signs of the draft tree and of the attention mask mean: one line of HTML for both pictures."""

from __future__ import annotations

from speclab.trace.records import Step
from speclab.views import playback
from speclab.views.attention_mask import ANCESTOR_COLOR, PREFIX_COLOR
from speclab.views.figures import INK, LINE, MUTED, PAPER
from speclab.views.markup import escape, tag
from speclab.views.palette import LOOKS, Look
from speclab.views.playback import WHOLE, PlaybackPosition

GLYPHS = {"square": "■", "circle": "●", "circle-open": "○", "x": "✖", "star": "★", "diamond": "◆"}
"""Plotly's symbols as letters."""
_STYLE = f"display:flex;flex-wrap:wrap;gap:2px 16px;align-items:center;font-size:12px;line-height:18px;color:{MUTED}"


def legend_html(step: Step, position: PlaybackPosition = WHOLE, *, mask: bool = True) -> str:
    """The signs that occur at a position; with `mask`, the colours of the mask as well."""
    kinds = {*playback.verdicts(step, position)}
    if playback.own_shown(step, position):
        kinds.add(playback.own_kind(step))
    verified = position.reached("verify")
    size, border = _sign(_ring(6, 1)) + _sign(_ring(12, 1)), _sign(_ring(9, 1)) + _sign(_ring(12, 3))
    entries = [(glyph(look, kind), look.label) for kind, look in LOOKS.items() if kind in kinds]
    entries += [(_sign(f"width:16px;border-top:1.5px solid {INK}"), "the target's choice")] * verified
    if kinds & {"accepted", "bonus", "corrected"}:
        entries.append((_sign(f"width:16px;border-top:3px solid {LOOKS['accepted'].color}"), "committed"))
    entries += [(size, "size: path probability"), *[(border, "border: target's probability")] * verified]
    parts = [_entry(sign, name) for sign, name in entries]
    if mask:
        box = f"width:11px;height:11px;box-sizing:border-box;border:1px solid {LINE}"
        colors = {"itself": INK, "ancestor": ANCESTOR_COLOR, "prefix": PREFIX_COLOR}
        parts.append(
            _entry(
                "mask: a row sees",
                "",
                *(_entry(_sign(f"{box};background:{color}"), name) for name, color in colors.items()),
            )
        )
    return tag("div", *parts, class_="sl-signs", style=_STYLE)


def glyph(look: Look, kind: str = "") -> str:
    """The symbol of a verdict, in its colour."""
    color = MUTED if kind == "root" else look.color
    edge = f";-webkit-text-stroke:.6px {INK};paint-order:stroke" if look.filled else ""
    return _sign(f"font-size:14px;color:{color}{edge}", GLYPHS[look.symbol])


def _entry(sign: str, name: str, *more: str) -> str:
    """What belongs together stays on one line."""
    style = "display:inline-flex;gap:5px;align-items:center;white-space:nowrap"
    return tag("span", sign, escape(name), *more, style=style)


def _ring(size: float, wide: float) -> str:
    style = f"width:{size}px;height:{size}px;box-sizing:border-box;border:{wide}px solid {MUTED};border-radius:50%"
    return f"{style};background:{PAPER}"


def _sign(style: str, letter: str = "") -> str:
    return tag("span", letter, aria_hidden="true", style=style)
