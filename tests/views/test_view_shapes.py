"""The two tree shapes: every node is drawn, and widths are rounded fairly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture import check_svg

from speclab.theory import IsotropicShape, SpineShape, best_isotropic, best_spine
from speclab.views.charts import _rounded, shapes_sentence, shapes_svg

KEY = 1
"""Of each mark, one stands in the legend."""


def _marks(picture, name):
    return sum(element.tag.endswith(name) for element in check_svg(picture).iter())


@pytest.mark.parametrize("depth", [1, 3])
def test_every_node_is_drawn(depth):
    spine, even = SpineShape(4, (3.0, 2.0, 0.0, 0.0), 2.0), IsotropicShape(3, 2, 2.0)
    picture = shapes_svg(spine, even, depth)
    assert _marks(picture, "rect") == 4 + 1 + 1 + KEY  # the spine, and a root for each tree
    assert _marks(picture, "circle") == 5 * depth + even.nodes + KEY


@given(st.lists(st.floats(0, 20), min_size=1, max_size=12))
def test_rounded_widths_add_up(widths):
    whole = _rounded(widths)
    assert sum(whole) == round(sum(widths))
    assert all(abs(a - b) <= 1 + 1e-9 for a, b in zip(whole, widths, strict=True))


@pytest.mark.parametrize(("p_s", "p_t"), [(0, 0), (0.0, 1.0), (1.0, 0.0), (1, 1), (0.85, 0.1), (0.3, 0.3)])
def test_any_rates_give_a_picture_of_one_size(p_s, p_t):
    spine, even = best_spine(p_s, p_t, 60, 6), best_isotropic(p_t, 60)
    svg = check_svg(shapes_svg(spine, even, 6))[0]
    assert (svg.get("width"), svg.get("height")) == ("740", "484")
    assert "nan" not in shapes_sentence(spine, even)
