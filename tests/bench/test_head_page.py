"""The page of a checked head, and the command that makes it."""

from __future__ import annotations

import json

import pytest
from page_reader import read, table
from typer.testing import CliRunner

from speclab.analysis.head_report import Bin, Finding, HeadReport, Share, Tried
from speclab.bench.head_page import head_page_html
from speclab.cli import app


def report(*findings: Finding) -> HeadReport:
    """Of a head called <b>odd</b>."""
    return HeadReport(
        head="<b>odd</b>",
        target="some/target",
        facts={"layers read": "3"},
        texts=2,
        places=100,
        accepted=(Share(12, 100), Share(0, 12), Share(0, 0)),
        guessed=(Share(12, 100), Share(9, 98), Share(8, 96)),
        calibration=(Bin(0.2, 0.3, Share(4, 60)), Bin(0.7, 0.5, Share(8, 40))),
        kinds={"prose": Share(2, 50), "code": Share(10, 50)},
        tried=(
            Tried("layer indices", "layer 2", Share(62, 100), Share(12, 100), 1, 0.5, 9.0, 3.0, 12.0, better=True),
            Tried("norm", "<i>after</i>", Share(12, 98), Share(12, 98), 2, 0.0, 0.0, -0.1, -1.0),
        ),
        findings=findings,
        notes=("It repeats itself.",),
    )


WRONG = Finding("layer indices", True, "Trying layer 2 gives 62.0%.", "Set the layers to [2].", 0.5)
FINE = Finding("norm", False, "No other place does better.")


def test_the_page_shows_cause_alternatives_and_depths_and_fetches_nothing():
    page = read(head_page_html(report(FINE, WRONG)))
    assert "Likeliest cause: layer indices" in page.text
    assert WRONG.out in page.text
    assert table(page, "way")["✗ layer 2"][:3] == ["layer indices", "62.0%", "+50.0 points"]
    assert table(page, "way")["<i>after</i>, second guesses"]
    depths = table(page, "depth")
    assert [depths[depth][0] for depth in "123"] == ["12.0%", "0.0%", "–"]
    assert list(table(page, "check")) == ["check", "✗ layer indices", "✓ norm"]
    assert table(page, "kind of prompt")["code"][0] == "20.0%"
    assert "<b>odd</b>" in page.text
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert len(page.labels) == 2


def test_where_all_is_well_the_page_says_what_is_normal():
    page = read(head_page_html(report(FINE)))
    assert "Likeliest cause" not in page.text
    assert "few training tokens" in page.text


@pytest.mark.model
def test_the_command_measures_a_folder_and_writes_its_page(tmp_path):
    asked = tmp_path / "asked.jsonl"
    asked.write_text("\n".join(json.dumps({"prompt": text}) for text in ("Once upon a time", "def area(r):")))
    words = ["--prompts", str(asked), "--max-new-tokens", "24", "--to", str(tmp_path / "head.html")]
    done = CliRunner().invoke(app, ["diagnose", "head", "prose", *words])
    assert done.exit_code == 0, done.output
    assert "as it is" in done.output
    assert read((tmp_path / "head.html").read_text()).headings[0].endswith("prose")
    gone = CliRunner().invoke(app, ["diagnose", "head", str(tmp_path)])
    assert gone.exit_code == 1
    assert "no draft head" in gone.output
