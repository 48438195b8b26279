"""Views as files: each is an SVG that stands alone, a PNG where a browser is there, or one sentence."""

from __future__ import annotations

import shutil
import struct
from xml.etree import ElementTree

import pytest
from made_run import made_run

from speclab.errors import SettingsError, TraceError
from speclab.views import raster
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
    monkeypatch.setattr(raster, "BROWSERS", ("no-such-browser",))
    with pytest.raises(TraceError, match=r"install one, or save as \.svg"):
        save_view(RUN, 1, "tree", tmp_path / "a.png")
    monkeypatch.setattr(raster, "BROWSERS", ("true",))
    with pytest.raises(TraceError, match=r"drew no picture .* save it as \.svg"):
        save_view(RUN, 1, "tree", tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.browser
def test_a_png_is_what_the_browser_shows_at_twice_its_size(tmp_path):
    if not any(map(shutil.which, raster.BROWSERS)):
        pytest.skip("no Chromium on the PATH")
    for view in ("text", "mask-whole"):
        picture = save_view(RUN, 3, view, tmp_path / f"{view}.png").read_bytes()
        root = ElementTree.fromstring(view_svg(RUN, 3, view))
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        wide, high = struct.unpack(">II", picture[16:24])
        assert (wide, high) == (
            int(2 * round(float(root.attrib["width"]))),
            int(2 * round(float(root.attrib["height"]))),
        )
