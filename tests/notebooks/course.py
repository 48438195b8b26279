"""What the tests of the course share: its notebooks, their solutions, and the wrong answers to their exercises."""

from __future__ import annotations

import ast
import dis
import io
import re
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from types import CodeType
from typing import Any

import nbformat

ROOT = Path(__file__).parents[2]
RIGHT = Path(__file__).with_name("right")
WRONG = Path(__file__).with_name("wrong")
LESSONS = sorted(path for path in (ROOT / "notebooks").glob("*.ipynb") if path.stem != "00_lab")
SOLUTION = re.compile(r"<details>\s*<summary>Solution</summary>.*?```python\n(.*?)```", re.DOTALL)


def read(path: Path) -> Any:
    """The notebook of a path."""
    return nbformat.read(path, as_version=4)


def tagged(cell: Any, tag: str) -> bool:
    """Whether a cell is an exercise, a test, …"""
    return tag in cell.metadata.get("tags", ())


def printed(code: str, names: dict[str, Any]) -> str:
    """Runs a cell, and returns what it prints, the value of its last line included."""
    lines = ast.parse(code).body
    last = lines.pop() if isinstance(lines[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as out:
        exec(compile(ast.Module(lines, []), "<cell>", "exec"), names)
        value = last and eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        if value is not None:
            print(repr(value))
    return out.getvalue().strip()


def asked(code: str) -> str:
    """The last function that some code defines: what an exercise asks for, or what answers it."""
    return [node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)][-1]


def solutions(notebook: Any) -> dict[str, str]:
    """By the name of what an exercise asks for, its folded solution."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return {asked(code): code for text in texts for code in SOLUTION.findall(text)}


def needed(cells: list[Any], wanted: Iterable[str]) -> list[Any]:
    """Those of some code cells that define what `wanted` code reads, or what they themselves read."""
    reads = set().union(*(_globals(code)[0] for code in wanted))
    kept = []
    for cell in reversed(cells):
        read, defined = _globals(cell.source)
        if reads & defined:
            reads |= read
            kept.insert(0, cell)
    return kept


def _globals(code: str) -> tuple[set[str], set[str]]:
    """The names that some code takes from other cells, and those that it defines."""
    read = set()
    defined = set()
    pending = [compile(code, "<cell>", "exec")]
    for part in pending:
        pending += [inner for inner in part.co_consts if isinstance(inner, CodeType)]
        for line in dis.get_instructions(part):
            if line.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                read.add(line.argval)
            elif line.opname == "STORE_NAME" and part is pending[0]:
                defined.add(line.argval)
    return read - defined, defined


def submitted(path: Path, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """By the name of what an exercise asks for: what is special about an answer, and the answer.

    A block of `<folder>/<notebook>.py` is an answer, or lines `old -> new` that are replaced in the
    solution, each once.
    """
    known = solutions(read(path))
    answers: dict[str, list[tuple[str, str]]] = {}
    text = (folder / f"{path.stem}.py").read_text(encoding="utf-8")
    for block in re.split(r"^# %% ", text, flags=re.MULTILINE)[1:]:
        title, _, code = block.partition("\n")
        name, _, what = title.partition(": ")
        if "def " not in code:
            changed = known[name]
            for line in filter(None, code.splitlines()):
                old, new = line.removeprefix("# ").split(" -> ")
                assert changed.count(old) == 1, (
                    f"{title}: {old!r} is {changed.count(old)} times in the solution"
                )
                changed = changed.replace(old, new.replace("\\n", "\n"))
            code = changed
        answers.setdefault(name, []).append((what, code))
    return answers
