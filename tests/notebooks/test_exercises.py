"""The notebooks' exercises can be solved: each folded solution, in place of its stub, passes the test cell below it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.notebook

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def _solutions(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Function name to code, of every solution folded into a text cell."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    folded = [
        code for text in texts for code in re.findall(r"<details>.*?```python\n(.*?)```.*?</details>", text, re.DOTALL)
    ]
    return {node.name: code for code in folded for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}


def _stub(source: str) -> str:
    """The name of the function that a cell leaves to the reader; empty if it leaves none."""
    lines = "\n".join(line for line in source.splitlines() if not line.startswith(("%", "!")))
    functions = [node for node in ast.parse(lines).body if isinstance(node, ast.FunctionDef)]
    return next((node.name for node in functions if len(node.body) == 1 and ast.get_docstring(node)), "")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_exercise_has_a_solution_that_its_own_test_accepts(path, monkeypatch):
    notebook = nbformat.read(path, as_version=4)
    solutions, stubs = _solutions(notebook), []
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and (name := _stub(cell.source)):
            stubs.append(place)
            cell.source = solutions.pop(name)
    assert solutions == {}, "a solution without a stub"
    if not stubs:
        return
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # two threads wait for each other where the machine is busy
    NotebookClient(notebook, timeout=180, kernel_name="python3", store_widget_state=False).execute()
    for place in stubs:
        (said,) = notebook.cells[place + 1].outputs
        assert said.text.strip().endswith("is right")


def test_a_stub_is_told_from_a_finished_function():
    assert _stub("def f(x):\n    'What.'") == "f"
    assert _stub("def f(x):\n    'What.'\n    return x") == ""
