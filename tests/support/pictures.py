"""What a figure of a tree shows."""

from __future__ import annotations


def nodes(figure) -> dict:
    """Of every drawn node: x, y, size, border, symbol."""
    (drawn,) = [trace for trace in figure.data if trace.name == "nodes"]
    marker = drawn.marker
    rest = zip(drawn.x, drawn.y, marker.size, marker.line.width, marker.symbol, strict=True)
    return dict(zip(drawn.customdata, rest, strict=True))


def texts(figure) -> list[str]:
    return [text for trace in figure.data if trace.mode == "text" for text in trace.text]


def said(figure) -> str:
    return figure.layout.meta["sentence"]
