"""Views as files: each is an SVG that stands alone, a PNG by resvg or a browser, or one sentence."""

from __future__ import annotations

import re
import shutil
import struct
from functools import partial
from xml.etree import ElementTree

import pytest
import resvg_py
from made_run import made_run

from speclab.errors import SettingsError, TraceError
from speclab.views import raster, resvg
from speclab.views.files import VIEWS, save_view, view_svg
from speclab.views.text import shown_tokens
from speclab.views.text_picture import ADVANCE, COLUMNS, PAD, text_svg
from speclab.views.tokens import label

RUN = made_run(4, 12, prompt=150)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_stands_alone(view, theme, tmp_path):
    path = save_view(RUN, 3, view, tmp_path / "view.svg", selected=1, theme=theme)
    svg = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root[0].tag == f"{SVG}rect", "the ground comes first"
    assert root.attrib["aria-label"]
    assert "var(" not in svg
    assert svg == view_svg(RUN, 3, view, 1, theme)
    assert (svg == view_svg(RUN, 2, view, 1, theme)) is False


def test_the_picture_of_the_text_holds_every_token_within_its_rows():
    root = ElementTree.fromstring(text_svg(RUN, 4))
    words = [node for node in root.iter(f"{SVG}text") if "textLength" in node.attrib]
    generated = [label(item.token, RUN.texts).removeprefix("␣") or "␣" for item in shown_tokens(RUN, 4)]
    assert [node.text for node in words][-len(generated) :] == generated
    assert "… 54 tokens …" in "".join(root.itertext())
    right = PAD + COLUMNS * ADVANCE + 0.1
    assert all(float(node.attrib["x"]) + float(node.attrib["textLength"]) <= right for node in words)
    places = [(node.attrib["x"], node.attrib["y"]) for node in words]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("view", "cursor", "name", "says"),
    [
        ("forest", 1, "a.svg", "no view 'forest': choose one of tree, "),
        ("tree", 0, "a.svg", "1 to 4 have"),
        ("tree", 5, "a.svg", "1 to 4 have"),
        ("text", -1, "a.svg", "0 to 4 have"),
        ("tree", 1, "a.jpg", "not as '.jpg'"),
        ("tree", 1, "a", "a file without an ending"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(tmp_path, view, cursor, name, says):
    with pytest.raises(SettingsError, match=says):
        save_view(RUN, cursor, view, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_no_folder_and_no_browser_are_said(tmp_path, monkeypatch):
    with pytest.raises(TraceError, match="choose another folder"):
        save_view(RUN, 1, "tree", tmp_path / "missing" / "a.svg")
    monkeypatch.setattr(raster, "png_by_resvg", lambda _: None)
    monkeypatch.setattr(raster, "BROWSERS", ("no-such-browser",))
    with pytest.raises(TraceError, match=r"install one \(and a font, such as DejaVu\), or save as \.svg"):
        save_view(RUN, 1, "tree", tmp_path / "a.png")
    monkeypatch.setattr(raster, "BROWSERS", ("true",))
    with pytest.raises(TraceError, match=r"drew no picture .* save it as \.svg"):
        save_view(RUN, 1, "tree", tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def check_png(picture: bytes, view: str) -> None:
    root = ElementTree.fromstring(view_svg(RUN, 3, view))
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    wide, high = struct.unpack(">II", picture[16:24])
    for got, name in ((wide, "width"), (high, "height")):
        assert got == pytest.approx(2 * float(root.attrib[name]), abs=2)


@pytest.mark.parametrize("view", VIEWS)
def test_a_png_needs_no_browser_and_holds_its_text(tmp_path, monkeypatch, view):
    if resvg._families() is None:
        pytest.skip("no font on this machine")
    monkeypatch.setattr(raster, "BROWSERS", ())
    picture = save_view(RUN, 3, view, tmp_path / f"{view}.png").read_bytes()
    check_png(picture, view)
    silent = re.sub(r"(<text[^>]*>)[^<]*(</text>)", r"\1\2", view_svg(RUN, 3, view))
    assert picture != resvg.png_by_resvg(silent), "its words are drawn"


def test_without_a_font_resvg_leaves_the_picture_to_a_browser(monkeypatch):
    monkeypatch.setattr(resvg_py, "svg_to_bytes", partial(resvg_py.svg_to_bytes, skip_system_fonts=True))
    resvg._families.cache_clear()
    assert resvg.png_by_resvg(view_svg(RUN, 3, "text")) is None
    resvg._families.cache_clear()


@pytest.mark.browser
def test_a_browser_draws_the_same_at_the_same_size(tmp_path, monkeypatch):
    if not any(map(shutil.which, raster.BROWSERS)):
        pytest.skip("no Chromium on the PATH")
    monkeypatch.setattr(raster, "png_by_resvg", lambda _: None)
    for view in ("text", "mask-whole"):
        check_png(save_view(RUN, 3, view, tmp_path / f"{view}.png").read_bytes(), view)
