"""What a drawing shows: its figures, which plotly takes, and all that is read in it."""

from __future__ import annotations

from html import unescape

from view_samples import words

from speclab.views.figures import Drawing, figure

TEXTS = ("text", "hovertext", "ticktext")


def parts(drawing: Drawing) -> list:
    """Its parts from top to bottom."""
    return [part for part in ([drawing] if isinstance(drawing, str | dict) else drawing) if part]


def figures(drawing: Drawing) -> list[dict]:
    """Its figures; plotly takes each, and each says what it shows."""
    found = [part for part in parts(drawing) if isinstance(part, dict)]
    for one in found:
        figure(one)
        assert one["layout"]["meta"]["label"].endswith(".")
    return found


def html(drawing: Drawing) -> str:
    """Its HTML."""
    return "".join(part for part in parts(drawing) if isinstance(part, str))


def said(drawing: Drawing) -> str:
    """Everything that is read in it, as a person sees it."""
    found = [words(html(drawing))]
    for one in figures(drawing):
        layout = one["layout"]
        held = [
            *one["data"],
            *layout.get("annotations", []),
            *(axis for name, axis in layout.items() if "axis" in name),
        ]
        found.append(layout["meta"]["label"])
        found += [text for part in held for key in TEXTS for text in _several(part.get(key, ""))]
        found += [part["name"] for part in held if part.get("name") and part.get("showlegend")]
    return unescape("\n".join(map(str, found)))


def _several(texts: object) -> list:
    return list(texts) if isinstance(texts, list | tuple) else [texts]
