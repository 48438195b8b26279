"""Points on one axis: where they stand, and that no name breaks out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from picture import HTML, check_svg, parse, texts

from speclab.views.charts import NAMES, WIDE, points_sentence, points_svg, points_table


def test_a_point_stands_at_its_value():
    root = check_svg(points_svg("shares", ["copied", "guessed"], {"prose": (0.5, 0.0), "code": (1.0, 0.25)}))
    circles = [float(mark.get("cx")) for mark in root.iter() if mark.tag.endswith("circle")]
    squares = [float(mark.get("x")) + 4.5 for mark in root.iter() if mark.tag.endswith("rect")]
    assert circles[1:] == [NAMES + 0.5 * WIDE, NAMES + WIDE]  # the first one stands in the legend
    assert squares[1:] == [NAMES, NAMES + 0.25 * WIDE]
    assert {"0", "0.25", "0.5", "0.75", "1", "prose", "code", "copied", "guessed"} <= set(texts(root))


@settings(max_examples=20)
@given(st.dictionaries(st.text("a<>&'\"é", min_size=1), st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1))
def test_any_figures_and_names_give_a_picture_and_a_table(rows):
    check_svg(points_svg("<b>", ["</svg>", "&"], rows))
    parse(points_table("<b>", ["</svg>", "&"], rows), HTML)


def test_the_sentence_tells_how_far_they_reach():
    assert (
        points_sentence("Shares", {"prose": (0.5, 0.031), "code": (1, 0.25)})
        == "Shares: 2 rows, values from 0.031 to 1."
    )
