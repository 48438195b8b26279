"""Curves, heat maps and the table of strategies: what stands in them, from replays made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import figures, said
from plotly.graph_objects import Figure
from view_samples import parse

import speclab
from speclab import views
from speclab.analysis.curves import Curve, Point
from speclab.errors import NotRecordedError
from speclab.views.setting_curve import curve_drawing, curve_sentence, curve_table

HERE = speclab.FixedTree(node_budget=8)
PLAIN = Point((), speclab.Autoregressive(), 60, 1.0, 100.0, 0, 60)
RATES = {4: (1.5, 140.0), 8: (2.0, 155.0), 16: (2.25, 181.0), 32: (2.26, 90.0)}


def point(*values: int, figures: tuple[float, float] = (1.0, 1.0), **changes: object) -> Point:
    strategy = HERE.changed(**dict(zip(("node_budget", "depth"), values, strict=False)))
    return replace(Point(values, strategy, 30, *figures, 40, 200), **changes)


def one(**changes: object) -> Curve:
    points = tuple([point(budget, figures=rates) for budget, rates in RATES.items()])
    return replace(Curve(HERE, {"node_budget": tuple(RATES)}, PLAIN, points), **changes)


def clickable(figure: dict) -> list[dict]:
    return [trace for trace in figure["data"] if trace.get("meta") == {"click": "point"}]


def test_a_curve_holds_both_figures_of_every_value_marks_two_of_them_and_says_which_is_modelled():
    (figure,) = figures(curve_drawing(one()))
    lines = [trace for trace in figure["data"] if trace.get("mode") == "lines+markers"]
    assert [trace["y"] for trace in lines] == [[rate[0] for rate in RATES.values()], [r[1] for r in RATES.values()]]
    assert figure["layout"]["xaxis"]["ticktext"] == ["4", "8", "16", "32"]
    for trace in lines:
        assert len({*trace["marker"]["symbol"]}) == 3, "colour is not alone"
    words = {note["x"]: note["text"] for note in figure["layout"]["annotations"] if note["xref"] == "x"}
    assert "here" in words[1]
    assert "best" in words[2]
    plain = [trace["y"] for trace in figure["data"] if trace.get("line", {}).get("dash")]
    assert plain == [[1.0, 1.0], [100.0, 100.0]]
    assert [trace["customdata"] for trace in clickable(figure)] == [[0, 1, 2, 3]] * 2
    sentence = curve_sentence(one())
    for fact in ("60 tokens", "node budget 16", "181", "1.81", "modelled", "node budget 8", "155"):
        assert fact in sentence
    table = curve_table(one())
    parse(table)
    assert all(f"{rate:.2f}" in table and f"{speed:,.0f}" in table for rate, speed in RATES.values())


def test_what_was_refused_leaves_a_gap_with_its_reason_and_what_is_not_exact_is_open():
    curve = one()
    changed = (
        curve.points[0],
        replace(curve.points[1], inexact="A table <b>was not kept."),
        replace(curve.points[2], strategy=None, refused="FixedTree: no & no"),
    )
    (figure,) = figures(drawing := curve_drawing(replace(curve, points=changed)))
    first = figure["data"][0]
    assert first["y"] == [1.5, 2.0, None]
    assert "open" not in first["marker"]["symbol"][0]
    for fact in ("FixedTree: no & no", "A table <b>was not kept.", "3 of 4"):
        assert fact in said(drawing)
    parse(curve_table(replace(curve, points=changed)))


def test_the_best_is_the_one_in_force_where_nothing_is_better_and_one_mark_says_both():
    curve = one()
    level = tuple([replace(point, tokens_per_second=155.0) for point in curve.points])
    curve = replace(curve, points=level)
    assert curve.best is curve.here is level[1]
    (figure,) = figures(curve_drawing(curve))
    words = {note["text"] for note in figure["layout"]["annotations"] if note["xref"] == "x"}
    assert all("here" in word and "best" in word for word in words)


def test_two_settings_are_two_maps_with_figures_in_their_cells():
    columns, rows = (4, 8, 16), (2, 5)
    cells = {(c, r): (c / 4 + r, 10.0 * c - r) for c in columns for r in rows}
    points = tuple([point(*values, figures=rates) for values, rates in cells.items()])
    found = Curve(HERE.changed(depth=5), {"node_budget": columns, "depth": rows}, PLAIN, points[:5])
    (figure,) = figures(curve_drawing(found))
    maps = clickable(figure)
    for i, trace in enumerate(maps):
        known = [[cells[c, r][i] if (c, r) != (16, 5) else None for c in columns] for r in rows]
        assert trace["z"] == known
        assert trace["customdata"] == [[0, 2, 4], [1, 3, None]]
        assert [["★" in text for text in row] for row in trace["text"]] == [[False, False, True], [False] * 3]
    assert "158" in maps[1]["text"][0][2]
    frames = [(shape["x0"], shape["y0"], shape["xref"]) for shape in figure["layout"]["shapes"]]
    assert frames == [(0.5, 0.5, "x"), (0.5, 0.5, "x2")]


def test_strategies_are_a_table_by_speed_and_no_figure():
    names = ("DynaTree", "Goose", "Retrieval")
    points = (
        Point(names[:1], speclab.DynaTree(), 30, 2.0, 150.0, 9, 99),
        Point(names[1:2], speclab.Goose(), 20, 3.0, 250.0, 0, 99),
        Point(names[2:], None, refused="Retrieval: text is missing"),
    )
    found = Curve(speclab.DynaTree(), {"strategy": names}, PLAIN, points)
    assert not figures(curve_drawing(found))
    words = said(curve_drawing(found))
    assert words.index("2.50") < words.index("1.50") < words.index("text is missing")
    with pytest.raises(NotRecordedError):
        views.curve(found)
    assert isinstance(views.curve(one(), theme="dark"), Figure)


@pytest.mark.parametrize("speed", [0.0, 1e-3, 1e9])
def test_any_reason_and_any_figure_is_drawn_whole(speed):
    reason = "<b>no</b> & $x$ %{y} ' \" 🙂"
    for count in (0, 1, 4):
        points = tuple([replace(p, tokens_per_second=speed, inexact=reason) for p in one().points[:count]])
        drawn = curve_drawing(one(points=(*points, replace(point(64), refused=reason))))
        figures(drawn)
        parse("".join(part for part in drawn if isinstance(part, str)))
        assert reason in said(drawn)
