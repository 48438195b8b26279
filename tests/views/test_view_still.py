"""A still picture: an image that holds the whole SVG and says it in words."""

from __future__ import annotations

from base64 import b64decode
from xml.etree import ElementTree

import pytest
from picture import check_svg
from view_samples import five_nodes, odd_tokens

from speclab.views.attention_mask import mask_svg
from speclab.views.draft_tree import tree_svg
from speclab.views.export import still


@pytest.mark.parametrize("draw", [tree_svg, mask_svg])
@pytest.mark.parametrize("sample", [five_nodes, odd_tokens])
def test_an_image_holds_the_picture_and_its_label(draw, sample):
    svg = draw(sample())
    image = ElementTree.fromstring(still(svg))
    assert image.tag == "img"
    assert image.get("alt") == check_svg(svg)[0].get("aria-label")
    assert b64decode(image.get("src").removeprefix("data:image/svg+xml;base64,")).decode() == svg
    assert "".join(image.itertext()) == "", "no words are left where images are taken out"


def test_every_picture_of_a_page_becomes_an_image_and_the_rest_stays():
    pictures = [tree_svg(five_nodes()), mask_svg(five_nodes())]
    page = f"<div><p>Words.</p>{pictures[0]}<b>More.</b>{pictures[1]}</div>"
    assert still(page) == f"<div><p>Words.</p>{still(pictures[0])}<b>More.</b>{still(pictures[1])}</div>"
    assert still("<p>No picture.</p>") == "<p>No picture.</p>"


def test_a_picture_that_names_no_namespace_is_still_drawn():
    """A page draws such an SVG, an image of it stays broken."""
    image = ElementTree.fromstring(still('<svg width="9" aria-label="Dots."></svg>'))
    drawn = ElementTree.fromstring(b64decode(image.get("src").partition(",")[2]))
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert (drawn.get("width"), image.get("alt")) == ("9", "Dots.")
