"""The report: one page that needs nothing else, whose figures follow from the results, whole or not."""

from __future__ import annotations

import re

import pytest
from made_results import HEADS, KINDS, METHODS, RECORDED, result, results, run, stored
from page_reader import LIBRARY, read, rows, table, without_library
from typer.testing import CliRunner

from speclab.bench import figures
from speclab.bench.report import report_html
from speclab.bench.result import RESULTS, write_run
from speclab.bench.summary import Spread, number
from speclab.cli import app


@pytest.fixture(scope="module")
def html():
    return report_html(stored())


@pytest.fixture(scope="module")
def page(html):
    return read(html)


def of(some, **info):
    return read(report_html(stored(some, **info)))


def test_the_page_asks_nobody_for_anything_and_every_link_has_its_place(html, page):
    assert page.links
    assert all(link[0] == "#" and link[1:] in page.ids for link in page.links)
    assert html.count(LIBRARY) == 1
    assert not re.search(r"https?://|@import|url\(", without_library(html))
    assert len(page.ids) == len(set(page.ids))


def test_every_figure_says_what_it_shows_and_every_other_has_its_numbers(html, page):
    assert len(page.labels) == 5
    assert all(label and label.endswith((".", ":")) for label in page.labels)
    folded = html.count("the numbers of this figure")
    assert folded == len(page.labels) - 2, "two have theirs in the table below them"


def test_speeds_follow_from_the_results(page):
    """Prose: 101 tokens in 1.02 s plain and 0.52 s with the tree. Code: 0.52 and 0.27."""
    speeds = table(page, "tokens/s", "over plain", "mean over kinds")
    assert speeds["plain"][0] == "147 99.0 to 194"
    assert speeds["DynaTree"][:4] == ["284 194 to 374", "1.94× 1.93× to 1.96×", "1.94×", "4.00"]
    assert speeds["DynaTree"][4:] == ["20.0", "3.75", "4 of 4", "4"]
    assert speeds["transformers, greedy"][1].startswith("0.80×")
    assert "The fastest of speclab's methods is DynaTree: 1.94× plain in the median of 4 prompts" in page.text
    assert "transformers, greedy is the fastest: 0.80×" in page.text
    assert "Every text compared is the target's own" in page.text


def test_kinds_passes_and_time(page):
    assert table(page, *KINDS)["DynaTree"] == ["1.96× 1.96× to 1.96×", "1.93× 1.93× to 1.93×"]
    calls = table(page, "target passes", "rows per target pass")
    assert calls["DynaTree"][:5] == ["25.7", "74.3", "5.00", "15.0", "75.0%"]
    assert calls["transformers, greedy"][4:] == ["–"] * 4
    split = table(page, "target", "draft", "host", "together")
    target, draft, host = 0.020 + 25 * 0.008, 25 * 0.008, 0.395 - 0.42
    assert [float(cell) for cell in split["DynaTree"]] == pytest.approx(
        [1000 * part / 101 for part in (target, draft, host, 0.395)], abs=0.01
    )


def test_what_loops_is_left_out_beside_the_whole(page):
    assert "No text of the 4 prompts loops" in page.text
    both = table(
        of([one.model_copy(update={"looping": one.kind == "code"}) for one in results()]),
        "the 2 of 4 prompts whose text does not loop",
    )
    assert both["DynaTree"] == ["1.96× 1.96× to 1.96×", "1.93× 1.93× to 1.93×", "1.96× 1.96× to 1.96×", "4.00"]


def test_what_a_reader_must_know_first_is_named():
    broken = [result("DynaTree", prompt_id=f"{i}", failed="No <draft> & no way: load one.") for i in range(2)]
    page = of([*(one for one in results() if one.method != "DynaTree"), *broken])
    assert table(page, "tokens/s", "mean over kinds")["DynaTree"] == ["No <draft> & no way: load one."]
    assert table(page, "why", "calls")["DynaTree"] == ["No <draft> & no way: load one.", "2"]
    assert "2 calls gave no text" in page.text
    page = of(
        [one.model_copy(update={"equal": one.method != "linear, K 5" or one.kind == "code"}) for one in results()]
    )
    assert table(page, "tokens/s", "mean over kinds")["linear, K 5"][6] == "2 of 4"
    assert "Not the target's own greedy text on every prompt: linear, K 5." in page.text
    page = of([one.model_copy(update={"equal": one.kind == "code", "tie": one.kind != "code"}) for one in results()])
    assert table(page, "tokens/s", "mean over kinds")["plain"][6] == "4 of 4, 2 by a tie"
    page = of([one for one in results() if one.method == "plain"], ended=None)
    assert "No result of linear, K 5, DynaTree, transformers, greedy." in page.text
    page = of([], ended=None)
    assert "There is no result yet." in page.text
    assert "How it was measured" in page.headings


def test_names_are_text_never_markup():
    name = "</script><img src=x onerror=alert(1)>"
    fastest = result(name, prompt_id="prose-0", cost=0.1)
    some = [*results(), fastest, result(name, kind="<b>", prompt_id="p"), result(name, prompt_id="q", failed=name)]
    told = {"title": name, "protocol": name, "x_name": name, "machine": {name: name}, "arguments": {name: name}}
    html = report_html(stored(some, notes=(name,), methods=(*METHODS, name), **told))
    assert "<img" not in html
    assert "<b>&" not in html
    assert read(html).text.count(name) > 8


def _write(folder, info, some, rest=""):
    write_run(folder, info)
    lines = [one.model_dump_json() + "\n" for one in some]
    (folder / RESULTS).write_text("".join((*lines, rest)))


def test_the_command_writes_the_page_of_a_run_that_was_cut_short_and_refuses_in_one_sentence(tmp_path):
    _write(tmp_path, run(ended=None), results()[:6], rest='{"protocol": "dynatree-ma')
    done = CliRunner().invoke(app, ["bench", "report", str(tmp_path)])
    assert (done.exit_code, done.stdout.strip()) == (0, str(tmp_path / "report.html"))
    page = read((tmp_path / "report.html").read_text())
    for said in ("Throughput and speedup", "Unfinished", "6 calls are kept", "line 7: cut short while it was written"):
        assert said in page.text
    refused = CliRunner().invoke(app, ["bench", "report", str(tmp_path / "nothing")])
    assert refused.exit_code == 1
    assert "cannot be read" in refused.output


def test_numbers_keep_the_digits_that_count():
    assert [number(x) for x in (1234.5, 412.4, 42.04, 3.417, 0.07123, 0.0, 0, None)] == [
        "1,234", "412", "42.0", "3.42", "0.0712", "0", "0", "–",
    ]  # fmt: skip


def _swept(protocol, methods, **info):
    some = [result(*name, prompt_id=f"p{i}", **rule) for i in range(2) for name, rule in methods]
    return of(some, protocol=protocol, methods=tuple(dict.fromkeys(name[0] for name, _ in methods)), **info)


def test_a_sweep_of_lengths_has_a_line_and_its_numbers_for_each_method():
    methods = [(("plain",), {"x": x}) for x in (100.0, 500.0)]
    methods += [(("DynaTree",), {"x": x, "per": 4.0, "cost": cost}) for x, cost in ((100.0, 3.0), (500.0, 2.0))]
    page = _swept("dynatree-length", methods, x_name="new tokens (T)")
    assert ["DynaTree", "1.32× 1.32× to 1.32×", "1.96× 1.96× to 1.96×"] in rows(page, "100", "500")
    assert [label for label in page.labels if label.startswith("speedup over new tokens (T)")]


def test_a_sweep_of_two_settings_is_a_grid_for_each_method():
    methods = [(("plain",), {})]
    methods += [
        (("DynaTree",), {"x": x, "x2": y, "per": 4.0, "cost": c}) for x, y, c in ((0.9, 0.4, 2.0), (0.8, 0.3, 3.0))
    ]
    page = _swept("dynatree-thresholds", methods, x_name="τ_h", x2_name="τ_ℓ")
    cells = table(page, "τ_h 0.8", "τ_h 0.9")
    assert (cells["τ_ℓ 0.3"], cells["τ_ℓ 0.4"]) == (["1.32×", "–"], ["–", "1.96×"])
    assert [label for label in page.labels if "The best is τ_h 0.9, τ_ℓ 0.4: 1.96×" in label]


def test_settings_of_different_kinds_are_drawn_apart():
    methods = [(("plain",), {})]
    methods += [((name,), {"x": x, "per": 2.0}) for name, xs in (("depth", (3.0, 5.0)), ("τ", (0.1, 0.2))) for x in xs]
    page = _swept("procedure", methods, x_name="D or τ")
    assert len([label for label in page.labels if label.startswith("speedup over D or τ")]) == 2


def _recorded(**fields):
    some = [result("Goose", kind=kind, prompt_id=kind, repeat=repeat, **fields)
            for kind in ("prose", "code") for repeat in range(2)]  # fmt: skip
    return of([*some, result("plain")], protocol="goose-decomposition")


def test_sources_paths_and_bounds_count_each_prompt_once():
    page = _recorded(**RECORDED)
    assert [row for row in rows(page, "spine continuation") if row[1] == "all"] == [
        ["Goose", "all", "200", "30.0%", "20.0%", "50.0%"]
    ]
    assert [row for row in rows(page, "first guess") if row[1] == "all"] == [
        ["Goose", "all", "context", "200", "30.0%", "75.0%", "75.0%"],
        ["Goose", "all", "transition", "1,000", "8.0%", "20.0%", "40.0%"],
    ]
    (shown, _) = [some for some in page.tables if "first guess" in some[0]]
    assert {row[1] for row in shown[1:]} == {"all"}, "single kinds are folded away"
    assert ["Goose", "code", "1.50", "2.00 holds", "4.50 fails", "4.00"] in rows(page, "isotropic")


def test_synergy_is_over_the_best_source_alone():
    both, one = RECORDED["sources"], {"context": RECORDED["sources"]["context"]}
    some = [result("plain"), result("Goose", per=4.0, sources=both), result("copies", per=2.0, sources=one)]
    page = of(some, protocol="goose-decomposition")
    assert ["Goose", "prose", "copies 2.00", "4.00", "2.00×"] in rows(page, "synergy")


def test_routed_parts_are_shown_chosen_or_not():
    shown = [row for row in rows(_recorded(heads=HEADS, paths=RECORDED["paths"]), "mean confidence") if row[1] == "all"]
    assert shown[0] == ["Goose", "all", "prose", "75.0%", "50.0%", "20.0%", "3.00", "2.00"]
    assert shown[1][2:4] == ["code", "25.0%"]


def test_no_series_is_told_apart_by_colour_alone():
    names = [f"method {i}" for i in range(8)]
    points = {1.0: Spread(1, 1, 1, 1), 2.0: Spread(2, 2, 2, 1)}
    drawn = figures.lines(dict.fromkeys(names, points), "x", "y").data
    assert len({(line.marker.symbol, line.line.dash) for line in drawn}) == len(names)
    stacked = figures.stacked({"a": {"target": 1, "draft": 1, "host": 1}}, "ms").data
    assert len({bar.marker.pattern.shape for bar in stacked}) == 3
    pair = {"a": Spread(1, 1, 1, 1), "b": Spread(1, 1, 1, 1)}
    assert len({group.marker.symbol for group in figures.spreads(pair, "u", transformers=frozenset("b")).data}) == 2
    points = [
        trace for trace in figures.trade(dict.fromkeys(names, (1.0, 1.0)), (1.0, 1.0)).data if "markers" in trace.mode
    ]
    assert [trace.text[0] for trace in points] == [str(i) for i in range(1, 9)]
