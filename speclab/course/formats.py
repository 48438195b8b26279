"""What an exercise looks like in each edition: the cells of the answer, and those of its test."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

Cell = dict[str, Any]
OTTER = """# ASSIGNMENT CONFIG
name: {name}
init_cell: true
export_cell: false
run_tests: false
files: {files}
"""
NBGRADER = """c = get_config()
c.CourseDirectory.course_id = "speclab"
c.ClearSolutions.code_stub = {"python": "# TODO"}
c.ExecutePreprocessor.timeout = 1200
c.ExecutePreprocessor.interrupt_on_timeout = True
"""


class Parts(NamedTuple):
    """An exercise as text."""

    letter: str
    points: int
    stub: str
    """The answer's cell: a signature, a docstring, `# TODO`."""
    solution: str
    """A whole function."""
    test: str
    """The test's call, whose random worlds are seeded."""
    visible: str
    """The same without random worlds."""

    def answer(self, before: str = "", after: str = "") -> str:
        """The stub with the solution's body, between two marks."""
        (function,) = ast.parse(self.solution).body
        assert isinstance(function, ast.FunctionDef)
        first = function.body[0].lineno - 1
        body = self.solution.rstrip().splitlines()[first:]
        marked = [f"    {before}"] * bool(before) + body + [f"    {after}"] * bool(after)
        return "\n".join([self.stub.partition("    # TODO")[0].rstrip(), *marked])


def student(parts: Parts) -> tuple[list[Cell], list[Cell]]:
    """The stub and the whole test."""
    return [code(parts.stub, "exercise")], [code(parts.test, "test")]


def solutions(parts: Parts) -> tuple[list[Cell], list[Cell]]:
    """The answer and the whole test."""
    return [code(parts.answer(), "exercise")], [code(parts.test, "test")]


def otter(parts: Parts) -> tuple[list[Cell], list[Cell]]:
    """A question of otter assign; its hidden test has all the points."""
    name = parts.letter.lower()
    right = f"{parts.letter} is right\n"
    settings = '""" # BEGIN TEST CONFIG\nhidden: {}\npoints: {}\n""" # END TEST CONFIG\n'
    cells = [
        raw(f"# BEGIN QUESTION\nname: {name}\npoints: {parts.points}"),
        raw("# BEGIN SOLUTION"),
        code(parts.answer("# BEGIN SOLUTION", "# END SOLUTION"), "exercise"),
        raw("# END SOLUTION"),
        raw("# BEGIN TESTS"),
        code(settings.format("false", 0) + parts.visible, "test", right),
        code(settings.format("true", parts.points) + parts.test, "test", right),
        raw("# END TESTS"),
        raw("# END QUESTION"),
    ]
    return cells, []


def nbgrader(parts: Parts) -> tuple[list[Cell], list[Cell]]:
    """An autograded answer and an autograder's test, the random worlds hidden."""
    answer = code(parts.answer("### BEGIN SOLUTION", "### END SOLUTION"), "exercise")
    answer["metadata"]["nbgrader"] = _nbgrader(f"{parts.letter}-answer", solution=True)
    (function,) = ast.parse(parts.solution).body
    assert isinstance(function, ast.FunctionDef)
    hidden = (
        f"### BEGIN HIDDEN TESTS\nimport speclab.course.answers\n\n{parts.test}\n"
        f"assert {function.name} in speclab.course.answers.right, "
        f'"{parts.letter} is open"\n'
        "### END HIDDEN TESTS"
    )
    test = code(f"{parts.visible}\n\n{hidden}", "test")
    test["metadata"]["nbgrader"] = _nbgrader(f"{parts.letter}-test", points=parts.points)
    return [answer], [test]


EDITIONS: dict[str, Callable[[Parts], tuple[list[Cell], list[Cell]]]] = {
    "student": student,
    "solutions": solutions,
    "otter": otter,
    "nbgrader": nbgrader,
}


def code(text: str, tag: str, printed: str = "") -> Cell:
    """A code cell that has not run, or that is said to have printed a text."""
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else []
    return {
        "cell_type": "code",
        "metadata": {"tags": [tag]},
        "execution_count": None,
        "outputs": outputs,
        "source": text,
    }


def raw(text: str) -> Cell:
    """A raw cell."""
    return {"cell_type": "raw", "metadata": {}, "source": text}


def _nbgrader(name: str, *, solution: bool = False, points: int | None = None) -> Cell:
    graded = {} if points is None else {"points": points}
    return {
        "grade_id": name,
        "grade": points is not None,
        "solution": solution,
        "locked": not solution,
        "task": False,
        "schema_version": 3,
        **graded,
    }
