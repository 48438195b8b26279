"""Every notebook of the course begins alike, and all addresses follow from one line of pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from dressing import ADDRESS, INSTALL, README, ROOT, colab, dress, lay_slides, slide_types, with_badges

pytestmark = pytest.mark.notebook
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ANEW = "write it anew: python tests/notebooks/save.py --heads"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_has_its_install_cell_its_link_and_slide_types(path: Path):
    kept, fresh = (nbformat.read(path, as_version=4) for _ in range(2))
    dress(fresh, path.name)
    lay_slides(fresh)
    assert fresh == kept, ANEW
    assert [i for i, cell in enumerate(kept.cells) if "install" in cell.metadata.get("tags", ())] == [1]
    assert colab(path.name) in kept.cells[0].source or path.name == "00_lab.ipynb"


def test_the_readme_links_every_notebook_of_its_table_to_colab():
    text = README.read_text(encoding="utf-8")
    assert with_badges(text) == text, ANEW
    assert text.count(f"]({ADDRESS.replace('github.com', 'colab.research.google.com/github')}/") == len(NOTEBOOKS)


def test_no_other_address_of_the_repository_is_written_anywhere():
    """What names it is made from that line: docs do not."""
    place = ADDRESS.partition("//")[2]
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    assert [name for name, text in texts.items() if place in text] == []


def test_the_install_cell_does_nothing_here():
    exec(re.sub("%.*", "raise AssertionError", INSTALL), {})


def test_slides_begin_at_headings_and_leave_out_what_is_for_a_keyboard():
    words, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    own = words("aside", metadata={"slideshow": {"slide_type": "notes"}})
    picture = nbformat.v4.new_output("display_data", data={"image/png": ""})
    cells = [words("# Title"), code("1", metadata={"tags": ["install"]}), words("## Part"), words("text"), own]
    cells += [words("**Predict.** How many?"), code("run()"), code("more()"), code("x\n" * 12, outputs=[picture])]
    cells += [
        words("### Exercise A · ★☆☆"),
        words("<details><summary>Solution</summary></details>"),
        words("## Quiz\n\n1?"),
    ]
    cells += [words("<details>\n\nB is right.\n\n</details>\n\n## Next"), code("# NBVAL_CHECK_OUTPUT\nprint()")]
    kinds = ["slide", "skip", "slide", "-", "notes", "subslide", "fragment", "-", "subslide", "skip", "skip", "skip"]
    kinds += ["slide", "-"]
    assert slide_types(cells) == kinds
