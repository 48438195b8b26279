"""Views as they are declared: drawn, described and tabulated from a frame, saved as files, and added by an outsider."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
import resvg_py
from draft_samples import routed, stopped
from made_run import made_run
from view_samples import five_nodes

from speclab.errors import SettingsError, TraceError
from speclab.views import export, registry
from speclab.views.export import page, save_view, snapshot, view_svg
from speclab.views.registry import VIEWS, Frame, View

RUN = made_run(4, 12, prompt=150)
SVG = "{http://www.w3.org/2000/svg}"
PICTURES = [name for name, view in VIEWS.items() if view.ending == ".svg"]


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_every_view_is_a_function_of_its_frame(view):
    for step in (five_nodes(), routed(), stopped()):
        run = type(RUN)(**{**vars(RUN), "steps": (step,)})
        frame = Frame(run, 1, selected=0)
        assert view.render(frame) == view.render(frame)
        assert isinstance(view.describe(frame) + view.tabulate(frame), str)
    assert "appears here" in view.render(Frame(RUN)) or view.place in {"below", "text"}
    assert view.ending == ".html" or view.render(Frame(RUN, 3)).startswith("<svg")


def nodes_html(step):
    return f"<p>{len(step.tree)} nodes, from outside</p>"


def test_a_view_of_ones_own_is_one_function_and_one_declaration(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "VIEWS", dict(VIEWS))
    monkeypatch.setattr(export, "VIEWS", registry.VIEWS)
    registry.register(View("size", nodes_html, ("step",), table=lambda step: f"<table><tr><td>{step.index}x</table>"))
    drawn = nodes_html(RUN.steps[1])
    assert drawn in snapshot(Frame(RUN, 2))
    assert drawn in page(RUN, 2)
    assert "<table><tr><td>1x" in page(RUN, 2)
    assert drawn in save_view(RUN, 2, "size", tmp_path / "size.html").read_text(encoding="utf-8")
    with pytest.raises(SettingsError, match=r"is HTML: save it as \.html"):
        save_view(RUN, 2, "size", tmp_path / "size.svg")


@pytest.mark.parametrize("view", PICTURES)
def test_a_picture_stands_alone(view, tmp_path):
    svg = save_view(RUN, 3, view, tmp_path / "view.svg", selected=1, theme="dark").read_text(encoding="utf-8")
    root = ElementTree.fromstring(svg)
    assert root[0].tag == f"{SVG}rect", "the ground comes first"
    assert root.attrib["aria-label"]
    assert "var(" not in svg
    assert svg == view_svg(RUN, 3, view, 1, "dark") != view_svg(RUN, 2, view, 1, "dark")


@pytest.mark.parametrize(
    ("view", "cursor", "name", "says"),
    [
        ("forest", 1, "a.svg", "no view 'forest': choose one of tree, "),
        ("tree", 0, "a.svg", "1 to 4 have"),
        ("tree", 5, "a.svg", "1 to 4 have"),
        ("text", -1, "a.html", "0 to 4 have"),
        ("tree", 1, "a.jpg", "not as '.jpg'"),
        ("tree", 1, "a", "a file without an ending"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(tmp_path, view, cursor, name, says):
    with pytest.raises(SettingsError, match=says):
        save_view(RUN, cursor, view, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_png_holds_its_text_at_twice_the_size(tmp_path):
    try:
        export._fonts()
    except LookupError:
        pytest.skip("no font on this machine")
    svg, picture = view_svg(RUN, 3, "tree"), save_view(RUN, 3, "tree", tmp_path / "tree.png").read_bytes()
    root = ElementTree.fromstring(svg)
    wide, high = struct.unpack(">II", picture[16:24])
    for got, name in ((wide, "width"), (high, "height")):
        assert got == pytest.approx(2 * float(root.attrib[name]), abs=2)
    assert picture != export.png(re.sub(r"(<text[^>]*>)[^<]*(</text>)", r"\1\2", svg)), "its words are drawn"


def test_no_folder_and_no_font_are_said(tmp_path, monkeypatch):
    with pytest.raises(TraceError, match="choose another folder"):
        save_view(RUN, 1, "tree", tmp_path / "missing" / "a.svg")
    monkeypatch.setattr(resvg_py, "svg_to_bytes", partial(resvg_py.svg_to_bytes, skip_system_fonts=True))
    export._fonts.cache_clear()
    with pytest.raises(TraceError, match=r"a font, such as DejaVu: install both, or save as \.svg"):
        save_view(RUN, 1, "tree", tmp_path / "a.png")
    export._fonts.cache_clear()
    assert not list(tmp_path.iterdir())


def test_views_need_neither_models_nor_widgets():
    names = [path.stem for path in Path(registry.__file__).parent.glob("*.py") if path.stem != "__init__"]
    code = "\n".join(
        [
            "import sys",
            *(f"import speclab.views.{name}" for name in names),
            "heavy = {'torch', 'transformers', 'ipywidgets', 'plotly', 'IPython'} & set(sys.modules)",
            "assert not heavy, heavy",
        ]
    )
    subprocess.run([sys.executable, "-c", code], check=True)
