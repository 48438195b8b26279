"""Reports of sweeps, and of what only records tell."""

from __future__ import annotations

import pytest
from made_results import HEADS, RECORDED, result, stored
from page_reader import read, table

from speclab.bench import figures
from speclab.bench.report import report_html
from speclab.bench.summary import Spread


def _swept(protocol, contenders, **info):
    some = [result(*name, prompt_id=f"p{i}", **law) for i in range(2) for name, law in contenders]
    names = tuple(dict.fromkeys(name[0] for name, _ in contenders))
    return read(report_html([stored(some, protocol=protocol, contenders=names, **info)]))


def test_a_sweep_of_lengths_stands_beside_the_papers_own():
    ways = [(("plain",), {"x": x}) for x in (100.0, 500.0)]
    ways += [(("DynaTree",), {"x": x, "per": 4.0, "cost": cost}) for x, cost in ((100.0, 3.0), (500.0, 2.0))]
    page = _swept("dynatree-length", ways, x_name="new tokens (T)")
    theirs = [row[1:] for row in _rows(page, "100", "200") if row[0] == "DynaTree, theirs"]
    figure, again = theirs[:3], theirs[3:]
    assert figure[0][:4] == ["116.6 ± 35.6", "142.0 ± 34.6", "144.7 ± 48.7", "185.8 ± 32"]
    assert again[1] == ["2.50", "3.39", "4.35", "5.38", "6.49", "7.08", "7.38"]
    assert again[2] == ["0.90×", "1.24×", "1.20×", "1.41×", "1.58×", "1.65×", "1.67×"]
    ours = [row[1:] for row in _rows(page, "100", "200") if row[0] == "DynaTree"]
    assert ours[2][:4] == ["1.32×", "–", "–", "1.96×"], "none is lent from another length"
    assert [label for label in page.labels if label.startswith("speedup over new tokens (T)")]


def test_a_sweep_of_two_settings_is_a_grid_beside_the_papers_points():
    ways = [(("plain",), {})]
    ways += [
        (("DynaTree",), {"x": x, "x2": y, "per": 4.0, "cost": c}) for x, y, c in ((0.9, 0.4, 2.0), (0.8, 0.3, 3.0))
    ]
    page = _swept("dynatree-thresholds", ways, x_name="τ_h", x2_name="τ_ℓ")
    cells = table(page, "τ_h 0.8", "τ_h 0.9")
    assert cells["τ_ℓ 0.3"] == ["1.32×", "–"]
    assert cells["τ_ℓ 0.4"] == ["–", "1.96×"]
    assert [label for label in page.labels if "The best is τ_h 0.9, τ_ℓ 0.4: 1.96×" in label]
    points = {row[1]: row[2:] for row in _rows(page, "ours", "theirs")}
    assert points["0.9, 0.4"] == ["194", "4.00", "1.96×", "187.8 ± 47.3", "6.88", "1.65×"]
    assert points["0.6, 0.2"][:3] == ["–", "–", "–"]


def test_each_contender_of_two_settings_has_a_grid_of_its_own():
    ways = [(("plain",), {})]
    ways += [((f"fixed tree, τ {at}",), {"x": 5.0, "x2": x, "per": 2.0}) for at in ("0.05", "0.1") for x in (2.0, 3.0)]
    page = _swept("dynatree-fixed-sweep", ways, x_name="D", x2_name="B")
    assert [label.partition(":")[0] for label in page.labels if "The best is D" in label] == [
        "fixed tree, τ 0.05", "fixed tree, τ 0.1",
    ]  # fmt: skip


def test_settings_of_different_kinds_are_drawn_apart():
    ways = [(("plain",), {})]
    ways += [(("by depth",), {"x": x, "per": 2.0}) for x in (3.0, 5.0)]
    ways += [(("by threshold",), {"x": x, "per": 2.0}) for x in (0.05, 0.1)]
    page = _swept("procedure", ways, x_name="D or τ")
    assert len([label for label in page.labels if label.startswith("speedup over D or τ")]) == 2


def _recorded(**fields):
    some = [result("Goose", kind=kind, prompt_id=kind, repeat=repeat, **fields)
            for kind in ("prose", "code") for repeat in range(2)]  # fmt: skip
    return read(report_html([stored([*some, result("plain")], protocol="goose-decomposition")]))


@pytest.fixture(scope="module")
def goose():
    return _recorded(**RECORDED)


def test_paths_and_sources_count_each_prompt_once(goose):
    paths = [row for row in _rows(goose, "spine continuation") if row[1] == "all"]
    assert paths == [["Goose", "all", "200", "30.0%", "20.0%", "50.0%"]]
    sources = [row for row in _rows(goose, "one a place") if row[1] == "all"]
    assert sources == [
        ["Goose", "all", "context", "200", "30.0%", "75.0%", "75.0%"],
        ["Goose", "all", "transition", "1,000", "8.0%", "20.0%", "40.0%"],
    ]


def test_a_bound_says_whether_it_holds(goose):
    assert ["Goose", "code", "1.50", "2.00 holds", "4.50 fails", "4.00"] in _rows(goose, "isotropic")


def test_the_papers_own_figures_of_the_decomposition_are_there(goose):
    shown = _rows(goose, "the paper's figures")
    assert ["Goose over the best single source", "mean of five models", "1.24"] in shown


def test_synergy_is_over_the_best_source_alone():
    both, one = RECORDED["sources"], {"context": RECORDED["sources"]["context"]}
    some = [result("plain"), result("Goose", per=4.0, sources=both), result("copies", per=2.0, sources=one)]
    page = read(report_html([stored(some, protocol="goose-decomposition")]))
    assert ["Goose", "prose", "copies 2.00", "4.00", "2.00×"] in _rows(page, "synergy")


def test_routed_parts_are_shown_chosen_or_not():
    page = _recorded(heads=HEADS)
    rows = [row for row in _rows(page, "mean confidence") if row[1] == "all"]
    assert rows[0] == ["Goose", "all", "prose", "75.0%", "50.0%", "20.0%", "3.00", "2.00"]
    assert rows[1][2:4] == ["code", "25.0%"]


def test_no_series_is_told_apart_by_colour_alone():
    names = [f"way {i}" for i in range(8)]
    series = [figures.Line(name, {1.0: Spread(1, 1, 1, 1), 2.0: Spread(2, 2, 2, 1)}) for name in names]
    drawn = figures.lines(series, "x", "y").data
    assert len({(line.marker.symbol, line.line.dash) for line in drawn}) == len(names)
    stacked = figures.shares({"a": {"target": 1, "draft": 1, "host": 1}}, "ms").data
    assert len({bar.marker.pattern.shape for bar in stacked}) == 3
    groups = figures.spreads({"a": Spread(1, 1, 1, 1), "b": Spread(1, 1, 1, 1)}, "u", peers=frozenset("b")).data
    assert len({group.marker.symbol for group in groups}) == 2
    points = [
        trace for trace in figures.trade(dict.fromkeys(names, (1.0, 1.0)), (1.0, 1.0)).data if "markers" in trace.mode
    ]
    assert [trace.text[0] for trace in points] == [str(i) for i in range(1, 9)]


def _rows(page, *heads):
    """Of every table with these headings: those of single kinds stand in one of their own."""
    return [row for rows in page.tables if set(heads) <= {cell for row in rows for cell in row} for row in rows]
