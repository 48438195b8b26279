"""Reading a picture back: parsed as XML, so that a token that broke out of its text would show as an element."""

from __future__ import annotations

import re
from xml.etree import ElementTree

SVG = {"svg", "g", "path", "rect", "circle", "text", "title", "image"}
HTML = {"div", "span", "style", "b", "s", "table", "caption", "thead", "tbody", "tr", "th", "td"}


def parse(markup: str, allowed: set[str]) -> ElementTree.Element:
    """The root of the picture; every element is one of `allowed`, none has a handler or a foreign address."""
    markup.encode("utf-8")
    root = ElementTree.fromstring(f"<div>{markup}</div>")
    for element in root.iter():
        name = element.tag.rpartition("}")[2]
        assert name in allowed | {"div"}, name
        for key, value in element.attrib.items():
            assert not key.lower().startswith("on"), key
            assert not key.endswith("href") or value.startswith("data:image/png;base64,"), value
    assert "http" not in markup.replace("http://www.w3.org/2000/svg", "")
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def check_svg(markup: str) -> ElementTree.Element:
    """Well-formed, labelled, no text below 10 px, text and data inside the picture."""
    root = parse(markup, SVG)
    svg = root[0]
    assert svg.get("role") == "img"
    assert svg.get("aria-label")
    width, height = float(svg.get("width")), float(svg.get("height"))
    assert svg.get("viewBox") == f"0 0 {svg.get('width')} {svg.get('height')}"
    for size in re.findall(r"(?:font|font-size):(?:600 )?([\d.]+)px", markup):
        assert float(size) >= 10, size
    for element in root.iter():
        if element.tag.endswith("text") and element.get("x"):
            assert -8 <= float(element.get("x")) <= width
            assert -8 <= float(element.get("y")) <= height
    for color in re.findall(r"var\(--jp-[\w-]+([,)])", markup):
        assert color == ",", "every variable has a fallback"
    return root
