"""Plant one fault at a time in speclab's source, in memory, and see that a test notices.

    python tests/planted_faults.py             # all
    python tests/planted_faults.py 3 17        # these, by their number
    python tests/planted_faults.py acceptance  # those whose file or test contains the word

A process imports the heavy libraries once, then forks a child for each fault; the child imports
speclab with that part of a line changed and runs the tests that have to fail.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PASSED = 0  # pytest's exit code
FAILED = 1


class Fault(NamedTuple):
    """A line of speclab, what is planted in its place, and the test file that notices."""

    path: str
    line: str
    planted: str
    test: str

    @property
    def module(self) -> str:
        return ".".join(Path("speclab", self.path).with_suffix("").parts)

    def source(self) -> str:
        """The whole file with the fault in it."""
        text = (ROOT / "speclab" / self.path).read_text()
        if text.count(self.line) != 1:
            raise ValueError(
                f"{self.path} contains {self.line!r} {text.count(self.line)} times, and not once"
            )
        return text.replace(self.line, self.planted)


def faults() -> list[Fault]:
    """The faults in `planted_faults.txt`."""
    lines = (ROOT / "tests" / "planted_faults.txt").read_text().splitlines()
    rows = [line.split(" || ") for line in lines if line and not line.startswith("#")]
    return [Fault(*row) for row in rows]


class Planter(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports one module from changed source."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._source = fault.source()

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> object:
        if name != self._fault.module:
            return None
        return importlib.util.spec_from_file_location(
            name, ROOT / "speclab" / self._fault.path, loader=self
        )

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.get_filename(fullname), "exec", dont_inherit=True)

    def get_filename(self, fullname: str) -> str:
        return str(ROOT / "speclab" / self._fault.path)

    def get_data(self, path: str) -> bytes:
        return self._source.encode()


def unnoticed(chosen: list[Fault]) -> Iterator[tuple[Fault, str]]:
    """The faults that no test noticed, each with what its tests printed."""
    for fault in chosen:
        with tempfile.NamedTemporaryFile("w+") as output:
            child = os.fork()
            if not child:
                code = 3
                try:
                    code = _run(fault, output.name)
                finally:
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code != FAILED:
                yield fault, f"exit code {code}\n{output.read()[-2000:]}"


def _run(fault: Fault, output: str) -> int:
    import pytest

    sys.meta_path.insert(0, Planter(fault))
    with (
        open(output, "w") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
        return int(pytest.main([*options, str(ROOT / "tests" / fault.test)]))


def main(words: list[str]) -> int:
    """Plant the faults that `words` select, all without any; prints those that no test noticed."""
    import pandas  # noqa: F401
    import plotly.graph_objects  # noqa: F401
    import pytest  # noqa: F401
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    chosen = []
    for number, fault in enumerate(faults()):
        if not words or any(
            word == str(number) or word in fault.path + fault.test for word in words
        ):
            chosen.append(fault)
    missed = 0
    for fault, output in unnoticed(chosen):
        missed += 1
        print(
            f"NOT NOTICED: {fault.path}: {fault.line!r} -> {fault.planted!r} by {fault.test}: "
            f"{output}"
        )
    print(f"{len(chosen) - missed} of {len(chosen)} faults were noticed.")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
