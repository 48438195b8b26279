"""The report: one page that needs nothing else, whose figures follow from the results, whole or not."""

from __future__ import annotations

import re
import sys

import pytest
from made_results import KINDS, LAW, result, results, run, stored
from page_reader import LIBRARY, read, table, without_library
from typer.testing import CliRunner

from speclab.bench.papers_beside import BESIDE
from speclab.bench.protocols import protocols
from speclab.bench.report import report_html, write_report
from speclab.bench.report_numbers import costs
from speclab.bench.report_tables import number
from speclab.bench.store import RESULTS, write_run
from speclab.cli import app
from speclab.errors import MeasurementError


@pytest.fixture(scope="module")
def html():
    return report_html([stored()])


@pytest.fixture(scope="module")
def page(html):
    return read(html)


def test_the_page_asks_nobody_for_anything(html, page):
    assert all(link.startswith("#") for link in page.links)
    assert html.count(LIBRARY) == 1
    assert not re.search(r"https?://|@import|url\(", without_library(html))


def test_every_link_has_its_place(html, page):
    assert all(f'id="{link[1:]}"' in html for link in page.links)


def test_every_figure_says_what_it_shows_and_every_other_has_its_numbers(html, page):
    assert len(page.labels) == 6
    assert all(label and label.endswith((".", ":")) for label in page.labels)
    folded = html.count("the numbers of this figure")
    assert folded == len(page.labels) - 1, "the numbers of the first one are the table of speeds"


def test_speeds_follow_from_the_results(page):
    """Prose: 101 tokens in 1.02 s plain and 0.52 s with the tree. Code: 0.52 and 0.27."""
    speeds = table(page, "tokens/s", "over plain", "mean over kinds")
    assert speeds["plain"][0] == "147 99.0 to 194"
    assert speeds["DynaTree"][:4] == ["284 194 to 374", "1.94× 1.93× to 1.96×", "1.94×", "4.00"]
    assert speeds["DynaTree"][4:] == ["20.0", "3.75", "4 of 4", "4"]
    assert speeds["transformers, greedy"][1].startswith("0.80×")


def test_the_lead_names_the_fastest_of_ours_and_of_the_peers(page):
    assert "The fastest of ours is DynaTree: 1.94× plain in the median of 4 prompts" in page.text
    assert "transformers, greedy is the fastest: 0.80×" in page.text
    assert "Every text compared is the target's own" in page.text


def test_the_paper_stands_beside_ours_with_what_differs(page):
    beside = table(page, "the paper's name", "theirs: WikiText-2")
    assert beside["DynaTree"] == ["DynaTree", "284 194 to 374", "1.94× 1.93× to 1.96×",
                                  "219.5 ± 22.2", "1.64×", "194.9 ± 35.6", "1.70×"]  # fmt: skip
    assert "transformers, greedy" not in beside, "no paper has it; it stands under Speed"
    assert beside["–"][:3] == ["Fixed Tree (D 8, B 3, τ 0.1)", "–", "–"], "of the paper alone"
    assert "Pythia-2.8B, drafted by Pythia-70M" in page.text
    assert "target of 10.9 M parameters" in page.text


def test_kinds_are_shown_apart(page):
    kinds = table(page, *KINDS)
    assert kinds["DynaTree"] == ["1.96× 1.96× to 1.96×", "1.93× 1.93× to 1.93×"]


def test_passes_are_counted_for_100_tokens(page):
    calls = table(page, "target passes", "rows a target pass")
    assert calls["DynaTree"][:4] == ["25.7", "74.3", "5.00", "75.0%"]
    assert calls["transformers, greedy"][2:] == ["–"] * 5


def test_time_is_split_into_target_draft_and_host(page):
    split = table(page, "target", "draft", "host", "together")
    target, draft, host = 0.020 + 25 * 0.008, 25 * 0.008, 0.395 - 0.42
    assert [float(cell) for cell in split["DynaTree"]] == pytest.approx(
        [1000 * part / 101 for part in (target, draft, host, 0.395)], abs=0.01
    )


def test_what_loops_is_left_out_beside_the_whole():
    some = [one.model_copy(update={"looping": one.kind == "code"}) for one in results()]
    both = table(read(report_html([stored(some)])), "the 2 whose text does not loop")
    assert both["DynaTree"] == ["1.94× 1.93× to 1.96×", "4.00", "1.96× 1.96× to 1.96×", "4.00"]


def test_without_loops_it_says_so(page):
    assert "No text of the 4 prompts loops" in page.text


def test_a_failure_is_a_row_that_says_why():
    broken = [result("DynaTree", prompt_id=f"{i}", failed="No <draft> & no way: load one.") for i in range(2)]
    page = read(report_html([stored([*(one for one in results() if one.contender != "DynaTree"), *broken])]))
    assert table(page, "tokens/s", "mean over kinds")["DynaTree"] == ["No <draft> & no way: load one."]
    assert table(page, "why", "calls")["DynaTree"] == ["No <draft> & no way: load one.", "2"]
    assert "2 calls gave no text" in page.text


def test_other_text_than_the_targets_is_named():
    some = [one.model_copy(update={"equal": one.contender != "linear, K 5" or one.kind == "code"}) for one in results()]
    page = read(report_html([stored(some)]))
    assert table(page, "tokens/s", "mean over kinds")["linear, K 5"][6] == "2 of 4"
    assert "Not the target's own greedy text on every prompt: linear, K 5." in page.text


def test_ties_of_rounding_are_counted_as_such():
    some = [one.model_copy(update={"equal": one.kind == "code", "tie": one.kind != "code"}) for one in results()]
    assert table(read(report_html([stored(some)])), "tokens/s", "mean over kinds")["plain"][6] == "4 of 4, 2 by a tie"


def test_names_are_text_never_markup():
    name = "<img src=x onerror=alert(1)>"
    some = [*results(), result(name, kind="<b>", prompt_id="p")]
    html = report_html([stored(some, contenders=(*LAW, name), title="<script>")])
    assert "<img" not in html
    assert "<b>&" not in html
    assert name in read(html).text


def test_a_run_that_was_cut_short_still_gives_a_report_that_says_so(tmp_path):
    _write(tmp_path, run(ended=None), results()[:6], rest='{"protocol": "dynatree-ma')
    page = read(write_report(tmp_path).read_text())
    assert "Unfinished" in page.text
    assert "6 calls are kept" in page.text
    assert "line 7: cut short while it was written" in page.text


def _write(folder, info, some, rest=""):
    write_run(folder, info)
    lines = [one.model_dump_json() + "\n" for one in some]
    (folder / RESULTS).write_text("".join((*lines, rest)))


def test_contenders_that_were_not_reached_are_named():
    page = read(report_html([stored([one for one in results() if one.contender == "plain"], ended=None)]))
    assert "No result of linear, K 5, DynaTree, transformers, greedy." in page.text


def test_a_run_without_a_result_has_a_report():
    page = read(report_html([stored([], ended=None)]))
    assert "There is no result yet." in page.text
    assert "How it was measured" in page.headings


def test_a_folder_of_runs_has_one_report(tmp_path):
    for name in ("dynatree-main", "goose-main"):
        _write(tmp_path / name, run(protocol=name), results())
    html = write_report(tmp_path).read_text()
    assert html.count(LIBRARY) == 1
    page = read(html)
    assert page.links == ["#r0", "#r1"]
    assert {"2 measurements of speculative decoding"} < set(page.headings)
    places = re.findall(r'id="([^"]*)"', without_library(html))
    assert len(places) == len(set(places))


def test_a_folder_without_results_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(MeasurementError, match="holds no results: name a folder"):
        write_report(tmp_path)


def test_costs_weigh_a_call_by_its_passes():
    cheap, dear = ({"nodes": 4, "passes": passes, "seconds": seconds} for passes, seconds in ((9, 0.001), (2, 0.005)))
    some = [
        result(verify_cost=(cost,)).model_validate(result(verify_cost=(cost,)).model_dump()) for cost in (cheap, dear)
    ]
    assert costs(some) == [(4, 0.001, 11)]


def test_numbers_keep_the_digits_that_count():
    assert [number(x) for x in (1234.5, 412.4, 42.04, 3.417, 0.07123, 0.0, 0, None)] == [
        "1,234", "412", "42.0", "3.42", "0.0712", "0", "0", "–",
    ]  # fmt: skip


def test_every_protocol_of_a_paper_is_read_beside_it():
    """Names of contenders are written twice: here they are held to each other."""
    for name, protocol in protocols().items():
        assert (name in BESIDE) == (protocol.source != "ours") or name == "main"
        for each in BESIDE.get(name, ()):
            read = {one.name: each.methods[one.name] for one in protocol.contenders if one.name in each.methods}
            assert set(read.values()) & set(each.published.methods) or not each.methods or not each.published.figures
    shown = {contender.name for protocol in protocols().values() for contender in protocol.contenders}
    assert {name for each in BESIDE.values() for one in each for name in one.methods} <= shown


def test_without_plotly_a_report_says_what_to_install(tmp_path, monkeypatch):
    _write(tmp_path, run(), results())
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MeasurementError, match=r"A report needs plotly.* pip install 'speclab\[lab\]'"):
        write_report(tmp_path)


def test_the_command_writes_the_page_and_refuses_in_one_sentence(tmp_path):
    _write(tmp_path, run(), results()[:4])
    done = CliRunner().invoke(app, ["bench", "report", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stdout.strip() == str(tmp_path / "report.html")
    assert "Throughput and speedup" in (tmp_path / "report.html").read_text()
    refused = CliRunner().invoke(app, ["bench", "report", str(tmp_path / "nothing")])
    assert refused.exit_code == 1
    assert "holds no results" in refused.output
