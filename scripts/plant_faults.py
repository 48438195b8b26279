"""Plant one fault at a time in a copy of speclab, and see that a test notices.

    python scripts/plant_faults.py             # all
    python scripts/plant_faults.py 3 17        # these, by their number
    python scripts/plant_faults.py acceptance  # those whose place or test contains the word
    python scripts/plant_faults.py --find      # only look for the places

A fault is a row of `tests/planted_faults.txt`: a function of the package, code in it, what is planted
there, and the tests that notice. Code is found by its syntax tree, in JavaScript by its tokens, so
a row survives reformatting, and a moved function. The heavy libraries are imported once; then a
process is forked for each fault, as many at a time as there are cores.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "speclab"
LINKED = 1 << 20
"""Larger files are links in a copy."""
SECONDS = 900
"""A fault that runs longer never ends; that is noticed."""
PASSED = 0  # pytest's exit codes
FAILED = 1
HOLE = re.compile(r"[A-Z]")
"""A capital letter stands for any expression, the same one in both columns."""


class Fault(NamedTuple):
    """`where`: a function (`Class.method`) or a module (`trace.conditions`), in JavaScript `js:tree.fold`."""

    where: str
    code: str
    planted: str
    test: str

    def __str__(self) -> str:
        return f"{self.where}: {self.code} → {self.planted} ({self.test})"


class NotFoundError(Exception):
    """The code of a fault is nowhere, or in several places."""


def faults() -> list[Fault]:
    """The rows of `tests/planted_faults.txt`."""
    lines = (ROOT / "tests" / "planted_faults.txt").read_text(encoding="utf-8").splitlines()
    return [Fault(*line.split(" || ")) for line in lines if line and not line.startswith("#")]


def plant(fault: Fault) -> tuple[Path, str]:
    """The file of a fault, relative to the checkout, and its whole text with the fault in it."""
    if fault.where.startswith("js:"):
        return _plant_script(fault)
    code, planted = _parsed(fault)
    scopes = [place for place in _scopes() if _named(fault.where, *place[:2])]
    # a function that has another name by now: its code may still be the only one like it
    scopes = scopes or [place for place in _scopes() if isinstance(place[2], ast.Module)]
    matches = []
    for path, _, scope in scopes:
        for node in ast.walk(scope):
            holes: dict[str, ast.AST] = {}
            if _same(code, node, holes):
                matches.append((path, node, holes))
    if len(matches) != 1:
        raise NotFoundError(f"{len(matches)} places")
    path, old, holes = matches[0]
    new = _Fill(holes).visit(planted)
    module = next(scope for file, name, scope in _scopes() if file == path and not name)
    changed = _Swap(old, new).visit(copy.deepcopy(module, {id(old): old}))
    return path, ast.unparse(ast.fix_missing_locations(changed))


def _named(where: str, path: Path, name: str) -> bool:
    module = ".".join(path.with_suffix("").parts[1:])
    return where in {name, f"{module}.{name}"} if name else where == module


@cache
def _scopes() -> list[tuple[Path, str, ast.AST]]:
    """Each module of the package, with no name, and each function and class with its own."""
    scopes: list[tuple[Path, str, ast.AST]] = []
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(ROOT)
        module = ast.parse(file.read_text(encoding="utf-8"))
        scopes.append((path, "", module))
        scopes += [(path, name, scope) for name, scope in _definitions(module, "")]
    return scopes


def _definitions(node: ast.AST, above: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        name = above
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{above}.{child.name}" if above else child.name
            yield name, child
        yield from _definitions(child, name)


def _parsed(fault: Fault) -> list[ast.AST]:
    """The code and what is planted: two expressions, or two statements."""
    statements = [ast.parse(text).body[0] for text in (fault.code, fault.planted)]
    values = [each.value for each in statements if isinstance(each, ast.Expr)]
    return list(values if len(values) == 2 else statements)


def _same(code: Any, node: Any, holes: dict[str, ast.AST]) -> bool:
    """Whether the node is this code, contexts apart; fills the holes."""
    if isinstance(code, ast.Name) and HOLE.fullmatch(code.id) and isinstance(node, ast.expr):
        return _same(holes.setdefault(code.id, node), node, {})
    if isinstance(code, ast.expr_context):
        return True
    if isinstance(code, ast.AST):
        return type(code) is type(node) and all(
            _same(getattr(code, name, None), getattr(node, name, None), holes)
            for name in code._fields
            if name != "type_comment"
        )
    if isinstance(code, list):
        return len(code) == len(node) and all(map(_same, code, node, [holes] * len(code)))
    return type(code) is type(node) and code == node


class _Fill(ast.NodeTransformer):
    def __init__(self, holes: dict[str, ast.AST]) -> None:
        self.holes = holes

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.holes.get(node.id, node)


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old = old
        self.new = new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def _plant_script(fault: Fault) -> tuple[Path, str]:
    import tree_sitter_javascript
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_javascript.language()))
    code = [token.text for token in _tokens(parser.parse(fault.code.encode()).root_node)]
    matches = []
    stem, _, name = fault.where.removeprefix("js:").partition(".")
    for file in sorted(PACKAGE.rglob(f"{stem}.js")):
        text = file.read_bytes()
        for scope in _script_functions(parser.parse(text).root_node, name.encode()):
            tokens = list(_tokens(scope))
            for i in range(len(tokens) - len(code) + 1):
                if [token.text for token in tokens[i : i + len(code)]] == code:
                    start = tokens[i].start_byte
                    end = tokens[i + len(code) - 1].end_byte
                    planted = text[:start] + fault.planted.encode() + text[end:]
                    matches.append((file.relative_to(ROOT), planted.decode()))
    if len(matches) != 1:
        raise NotFoundError(f"{len(matches)} places")
    return matches[0]


def _tokens(node: Any) -> Iterator[Any]:
    if node.type != "comment":
        if not node.children:
            yield node
        for child in node.children:
            yield from _tokens(child)


def _script_functions(node: Any, name: bytes) -> Iterator[Any]:
    """The functions of that name: declared, or a constant."""
    label = node.child_by_field_name("name")
    if label is not None and label.text == name:
        yield node
    else:
        for child in node.children:
            yield from _script_functions(child, name)


def _copied(folder: Path) -> Path:
    """What tests read, in a folder of its own."""

    def put(source: str, goal: str) -> None:
        if Path(source).stat().st_size > LINKED:
            os.symlink(source, goal)
        else:
            shutil.copy2(source, goal)

    skipped = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "build", "dist")
    shutil.copytree(ROOT, folder, copy_function=put, ignore=skipped, symlinks=True)
    return folder


def _run(folder: Path, test: str, output: Path) -> int:
    import pytest

    signal.alarm(SECONDS)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    with (
        output.open("w") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
        return int(pytest.main([*options, str(folder / "tests" / test)]))


class Slot:
    """A copy of the checkout in which one fault at a time is planted and its test runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = _copied(folder)
        self.output = folder.with_suffix(".txt")

    def start(self, name: str, test: str, change: tuple[Path, str] | None) -> int:
        self.name = name
        self.original = None
        self.began = time.monotonic()
        if change is not None:
            self.changed = self.folder / change[0]
            self.original = self.changed.read_bytes()
            self.changed.write_text(change[1], encoding="utf-8")
        process = os.fork()
        if not process:
            code = 3
            try:
                code = _run(self.folder, test, self.output)
            finally:
                os._exit(code)
        return process

    def finish(self, code: int) -> str:
        """What is wrong, empty if nothing: a fault must fail its test, and no fault must not."""
        if self.original is not None:
            self.changed.write_bytes(self.original)
        wanted = {PASSED} if self.original is None else {FAILED, -signal.SIGALRM}
        seconds = time.monotonic() - self.began
        printed = self.output.read_text()
        failed = re.search(r"FAILED \S*::(\S+)", printed)
        by = f", noticed by {failed[1]}" if failed else ""
        print(f"{'good' if code in wanted else 'WRONG':5} {seconds:4.0f} s  {self.name}{by}")
        if code in wanted:
            return ""
        wrong = "NOT NOTICED" if self.original is not None else "FAILS WITHOUT A FAULT"
        return f"{wrong}: {self.name}: exit code {code}\n{printed[-1500:]}"


def run(jobs: list[tuple[str, str, tuple[Path, str] | None]], folder: Path) -> list[str]:
    """Runs jobs (name, test, changed file) side by side; returns what is wrong."""
    free = [Slot(folder / str(number)) for number in range(len(os.sched_getaffinity(0)))]
    busy: dict[int, Slot] = {}
    wrong = []
    while jobs or busy:
        if jobs and free:
            slot = free.pop()
            busy[slot.start(*jobs.pop(0))] = slot
            continue
        process, status = os.wait()
        slot = busy.pop(process)
        wrong.append(slot.finish(os.waitstatus_to_exitcode(status)))
        free.append(slot)
    return list(filter(None, wrong))


def main(words: list[str]) -> int:
    """Plants the faults that `words` select, all without any."""
    only_find = "--find" in words
    words = [word for word in words if word != "--find"]
    jobs: list[tuple[str, str, tuple[Path, str] | None]] = []
    wrong = []
    for number, fault in enumerate(faults()):
        if words and not any(
            word == str(number) or (not word.isdigit() and word in fault.where + fault.test)
            for word in words
        ):
            continue
        try:
            jobs.append((f"no. {number}, {fault}", fault.test, plant(fault)))
        except (NotFoundError, SyntaxError) as error:
            wrong.append(f"NOT FOUND: no. {number}, {fault}: {error}")
    planted = len(jobs)
    if not only_find:
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        _import_libraries()
        jobs = [(test, test, None) for test in sorted({test for _, test, _ in jobs})] + jobs
        with tempfile.TemporaryDirectory(prefix="speclab-faults-") as folder:
            wrong += run(jobs, Path(folder))
    print(*wrong, sep="\n")
    print(f"{planted} faults, {len(wrong)} not as they must be.")
    return int(bool(wrong))


def _import_libraries() -> None:
    import pandas  # noqa: F401
    import plotly.graph_objects  # noqa: F401
    import pytest  # noqa: F401
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
