"""What every notebook of the course has in common, and that its prose says what its cells say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

pytestmark = pytest.mark.notebook

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
NOT_PROSE = re.compile(
    r"```.*?```"  # code
    r"|`[^`]*`"
    r"|^#.*?$"  # headings
    r"|^\s*\d+\. "  # numbers of a list
    r"|\[[^\]]*\]\([^)]*\)"  # links
    r"|https?://\S+"
    r"|§[\d.]+"
    r"|\b(?:[Ss]ections?|[Nn]otebooks?|Appendix|Propositions?|Exercises?|Tables?|Figures?) [\d.]+"
    r"(?: (?:and|to) [\d.]+)?"
    r"|\*\*Time\.\*\*.*?$|\*\*Read\.\*\*.*?$"
    r"|<[^>]+>",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?: ?%)?")


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> nbformat.NotebookNode:
    return nbformat.read(request.param, as_version=4)


def _tagged(notebook: Any, tag: str) -> list[Any]:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", ())]


def _markdown(notebook: Any) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def test_a_reader_learns_what_it_needs_takes_and_gives(notebook):
    text = _markdown(notebook)
    for mark in ("**Before.**", "**Goal.**", "**Time.**", "**Read.**", "(glossary.md"):
        assert mark in text, f"{mark} is nowhere"
    assert re.search(r"\*\*Time\.\*\*[^\n]*\b\d+ minutes", text)


def test_a_class_can_follow_it(notebook):
    assert len(notebook.cells) <= 45
    lines = {cell.source: len(cell.source.splitlines()) for cell in notebook.cells if cell.cell_type == "code"}
    tests = {cell.source for cell in _tagged(notebook, "test")}
    assert [source for source, count in lines.items() if count > (20 if source in tests else 12)] == []


def test_it_ends_with_five_questions_whose_answers_are_folded(notebook):
    quiz = _markdown(notebook).partition("\n## Quiz")[2].partition("\n## ")[0]
    assert quiz.count("<summary>Answer</summary>") == 5


def test_its_story_is_compared_by_nbval(notebook):
    (digest,) = _tagged(notebook, "digest")
    assert digest.source.startswith("# NBVAL_CHECK_OUTPUT")
    assert digest.outputs


def test_every_number_in_its_prose_is_in_a_cell(notebook):
    """Printed by it, or in its code: asserted, set, or given to a picture."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = "\n".join([cell.source + "\n" + "\n".join(map(_words, cell.outputs)) for cell in cells])
    known = {number.replace(",", "").replace("_", "") for number in re.findall(r"\d[\d,_]*(?:\.\d+)?", shown)}
    known |= {f"{float(number):g}" for number in known}
    missing = [
        found
        for found in NUMBER.findall(NOT_PROSE.sub(" ", FOLDED.sub(" ", _markdown(notebook))))
        if not _spellings(found) & known
    ]
    assert missing == []


def _words(output: Any) -> str:
    """What an output says in words: no pixels, no points of a curve."""
    data = output.get("data", {})
    page = re.sub(r"data:[^\"']+", "", data.get("text/html", ""))
    layout = data.get("application/vnd.plotly.v1+json", {}).get("layout", {})
    texts = [output.get("text", ""), data.get("text/plain", ""), page, json.dumps(layout, ensure_ascii=False)]
    return "\n".join(map("".join, texts))


def _spellings(number: str) -> set[str]:
    """As it stands; and 44 % as 0.44."""
    plain = number.replace(",", "").rstrip(" %")
    share = {f"{float(plain) / 100:g}", f"{float(plain) / 100:.2f}"} if number.endswith("%") else set()
    return {plain, f"{float(plain):g}", *share}
