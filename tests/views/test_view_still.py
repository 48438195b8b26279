"""A still picture: one image that holds the whole SVG and says it in words."""

from __future__ import annotations

from base64 import b64decode
from xml.etree import ElementTree

import pytest
from picture import check_svg
from view_samples import five_nodes, odd_tokens

from speclab.views.mask import mask_svg
from speclab.views.still import still
from speclab.views.tree import tree_svg


@pytest.mark.parametrize("draw", [tree_svg, mask_svg])
@pytest.mark.parametrize("sample", [five_nodes, odd_tokens])
def test_an_image_holds_the_picture_and_its_label(draw, sample):
    svg = draw(sample())
    image = ElementTree.fromstring(still(svg))
    assert image.tag == "img"
    assert image.get("alt") == check_svg(svg)[0].get("aria-label")
    assert b64decode(image.get("src").removeprefix("data:image/svg+xml;base64,")).decode() == svg


def test_no_words_are_left_where_the_image_is_taken_out():
    assert "".join(ElementTree.fromstring(still(tree_svg(five_nodes()))).itertext()) == ""
