"""The style sheet of the text view. Each kind has a tint and a line of its own, so that colour is not alone."""

from __future__ import annotations

from speclab.views.palette import LOOKS, MONO, SANS, SOURCE_COLORS

SHADES = 5
"""Steps of probability."""
_INK, _MUTED = "var(--jp-ui-font-color1,inherit)", "var(--jp-ui-font-color2,#767676)"
_RULE = "var(--jp-border-color1,#999)"
_RED = LOOKS["rejected"].color
_BLUE = LOOKS["accepted"].color


def _rgba(color: str, opacity: float) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:.2f})"


def _tint(color: str, line: str, opacity: float = 0.2, wide: int = 2) -> str:
    return f"{{background:{_rgba(color, opacity)};border-bottom:{wide}px {line} {color}}}"


def _frame() -> list[str]:
    return [
        f".speclab-text{{font:13px/1.9 {MONO};color:{_INK};max-width:100ch}}",
        ".speclab-text-body{white-space:pre-wrap;overflow-wrap:anywhere}",
        f".sl-legend{{display:flex;flex-wrap:wrap;gap:2px 18px;font:11px/1.9 {SANS};margin-bottom:8px;color:{_MUTED}}}",
        f".sl-p{{color:{_MUTED}}}",
        f".sl-gap{{font-style:italic;border:1px dashed {_RULE};border-radius:8px;padding:0 4px;margin:0 4px}}",
        ".sl-t{border-radius:3px;padding:1px 0;border-bottom:2px solid transparent;margin-right:1px}",
        f".sl-first,.sl-q{{border-bottom:2px dotted {_MUTED}}}",
        f".sl-mark{{font:10px/1 {SANS};color:{_MUTED};border-left:1px solid {_RULE};margin:0 3px 0 5px}}",
        ".sl-mark{padding-left:3px;vertical-align:2px;user-select:none}",
        ".sl-mark b{font-weight:600;margin-left:2px}",
        f".sl-x{{font-size:11px;margin-left:4px;cursor:pointer;color:{_MUTED};border-bottom:2px dotted {_RED}}}",
        ".sl-fold{display:none}.sl-x:focus .sl-fold,.sl-open .sl-fold{display:inline}",
        f".sl-x s{{text-decoration:line-through 1.5px {_rgba(_RED, 0.7)};margin:0 3px}}",
    ]


def _kinds() -> list[str]:
    lines = {"accepted": ("solid", 2), "bonus": ("double", 4), "corrected": ("dashed", 2)}
    return [f".sl-{kind}" + _tint(LOOKS[kind].color, line, wide=wide) for kind, (line, wide) in lines.items()]


def _sources() -> list[str]:
    lines = ("solid", "dashed", "dotted")
    return [f".sl-s{i}" + _tint(color, lines[i % 3], 0.22) for i, color in enumerate(SOURCE_COLORS)]


def _others() -> list[str]:
    shades = [
        f".sl-q{i}{{background:{_rgba(_BLUE, 0.06 + 0.12 * i)};border-bottom:2px solid {_rgba(_BLUE, 0.15 + 0.2 * i)}}}"
        for i in range(SHADES)
    ]
    return [".sl-i0{background:rgba(128,128,128,.14)}", ".sl-i1" + _tint(_BLUE, "solid"), *shades]


STYLE = "".join([*_frame(), *_kinds(), *_sources(), *_others()])
"""To be set once on a page that shows `text_chunks`."""
