"""Views as they are declared: drawn, described and tabulated from a frame, saved as files, and added by an outsider."""

from __future__ import annotations

import struct
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
import resvg_py
from draft_samples import routed, stopped
from hypothesis import given, settings
from hypothesis import strategies as st
from made_run import made_run
from view_samples import drafted_root, ended_inside, five_nodes, large, odd_tokens, one_node, parse, steps, trace

from speclab.errors import SettingsError, TraceError
from speclab.trace.records import Step
from speclab.views import export, playback, registry
from speclab.views.export import page, save_view, snapshot, still, view_svg
from speclab.views.registry import VIEWS, Frame, View

RUN = made_run(4, 12, prompt=150)
PICTURES = [name for name, view in VIEWS.items() if view.ending == ".svg"]


def framed(step: Step, **changes) -> Frame:
    return Frame(replace(RUN, steps=(step,), texts=step.texts), 1, **changes)


@settings(max_examples=15)
@given(steps(), st.data())
def test_every_view_of_any_iteration_at_any_position_is_whole_labelled_and_lets_no_token_break_out(step, data):
    position = data.draw(st.sampled_from(playback.positions(step)))
    selected = data.draw(st.none() | st.integers(0, len(step.tree) - 1))
    for view in VIEWS.values():
        frame = framed(step, position=position, selected=selected)
        parse(view.render(frame, data.draw(st.sampled_from(["light", "dark"]))))
        parse(view.tabulate(frame))


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_every_view_is_a_small_function_of_its_frame(view):
    samples = (five_nodes, routed, stopped, one_node, odd_tokens, drafted_root, ended_inside, large)
    for step in (sample() for sample in samples):
        frame = framed(step, selected=0)
        drawn = view.render(frame)
        assert drawn == view.render(frame)
        assert view.place == "file" or len(drawn) < 90_000 or view.name in {"tables", "mask-whole"}
        parse(drawn + view.tabulate(frame))
        assert isinstance(view.describe(frame), str)
    assert "appears here" in view.render(Frame(RUN)) or view.place in {"below", "text"}


def test_a_long_run_is_shown_in_a_few_bytes():
    for name in ("metrics", "strategy"):
        assert len(VIEWS[name].render(Frame(trace(200), 200))) < 90_000


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
def test_a_picture_stands_alone_as_a_file_and_as_an_image(view, tmp_path):
    svg = save_view(RUN, 3, view, tmp_path / "view.svg", selected=1, theme="dark").read_text(encoding="utf-8")
    assert ElementTree.fromstring(svg).attrib["aria-label"]
    assert "var(" not in svg
    assert svg == view_svg(RUN, 3, view, 1, "dark") != view_svg(RUN, 2, view, 1, "dark")
    image = ElementTree.fromstring(still(svg))
    assert image.get("alt") == ElementTree.fromstring(svg).attrib["aria-label"]
    assert b64decode(image.get("src").partition(",")[2]).decode() == svg
    assert still(f"<div><p>Words.</p>{svg}</div>") == f"<div><p>Words.</p>{still(svg)}</div>"


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


def test_a_png_has_twice_the_size_and_no_folder_and_no_font_are_said(tmp_path, monkeypatch):
    with pytest.raises(TraceError, match="choose another folder"):
        save_view(RUN, 1, "tree", tmp_path / "missing" / "a.svg")
    try:
        export._fonts()
    except LookupError:
        pytest.skip("no font on this machine")
    root = ElementTree.fromstring(view_svg(RUN, 3, "tree"))
    size = struct.unpack(">II", save_view(RUN, 3, "tree", tmp_path / "tree.png").read_bytes()[16:24])
    assert size == pytest.approx([2 * float(root.attrib[name]) for name in ("width", "height")], abs=2)
    monkeypatch.setattr(resvg_py, "svg_to_bytes", partial(resvg_py.svg_to_bytes, skip_system_fonts=True))
    export._fonts.cache_clear()
    with pytest.raises(TraceError, match=r"a font, such as DejaVu: install both, or save as \.svg"):
        save_view(RUN, 1, "tree", tmp_path / "a.png")
    export._fonts.cache_clear()


def test_views_need_neither_models_nor_widgets():
    names = [path.stem for path in Path(registry.__file__).parent.glob("*.py") if path.stem != "__init__"]
    heavy = "{'torch', 'transformers', 'ipywidgets', 'plotly', 'IPython'} & set(sys.modules)"
    imports = "".join(f"import speclab.views.{name}; " for name in names)
    subprocess.run([sys.executable, "-c", f"import sys; {imports} assert not {heavy}"], check=True)
