"""A feature can be deleted: without its folder and its line the rest works.

A copy without it imports, a lab opens, decodes, forks and exports its page, and the scripts draw.
By day every second feature is missing, and then the others. At night each is missing alone, and the
unit tests of the rest pass.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.checkout import copy_or_link
from support.checkout import kept as kept_files
from support.processes import python

from speclab.features import FEATURES, FOLDER, PICTURES

ROOT = Path(__file__).parents[2]
TRIED = """
import sys
import speclab
from speclab.views.drawing import call

lab = speclab.Lab("mini", max_new_tokens=24)
assert lab.wait(300)
assert not lab.state.errors, lab.state.errors
assert lab.step() is not None
lab.back()
lab.fork(strategy=speclab.LinearSpeculation())
lab.run(until="accepted < 1")
page = lab.export(sys.argv[1])
trace = lab.session.trace
speclab.views.tree(trace.steps[0])
speclab.views.mask(trace.steps[0])
speclab.views.timeline(trace)
state = call("firstState")
first, _ = call("reduce", state, {"type": "run", "id": 0, "header": {}, "keep": 0, "steps": [], "cursor": 0})
assert first["run"] == 0
lab.close()
"""


def _copy_without(missing: Sequence[str], to: Path) -> None:
    """The package in a folder, without these features and their lines."""
    shutil.copytree(ROOT / "speclab", to / "speclab", copy_function=copy_or_link)
    listed = to / "speclab" / "features" / "__init__.py"
    text = listed.read_text(encoding="utf-8")
    for feature in missing:
        shutil.rmtree(to / "speclab" / "features" / feature)
        text = re.sub(rf'(?m)^    "{feature}",\n', "", text)
        text = re.sub(rf'(?m)^    "\w+": "{feature}",\n', "", text)
    listed.write_text(text, encoding="utf-8")


def _uses_of(feature: str) -> re.Pattern[str]:
    """What a test has that uses the feature: its module, a public name or a picture that it gives."""
    stub = (ROOT / "speclab" / "__init__.pyi").read_text(encoding="utf-8")
    module = rf"speclab\.features\.{feature}\b"
    wanted = [module]
    for names in re.findall(module + r"\S* import (\([^)]*\)|.*)", stub):
        for name in re.findall(r"\w+ as (\w+)", names):
            wanted.append(rf"speclab\.{name}\b")
    for name, owner in PICTURES.items():
        if owner == feature:
            wanted.append(rf"(?:views\.|drawn\(\"){name}\b")
    return re.compile("|".join(wanted))


def test_every_folder_has_its_line_and_every_line_its_folder():
    folders = {path.parent.name for path in FOLDER.glob("*/__init__.py")}
    assert folders == {*FEATURES}
    assert {*PICTURES.values()} <= {*FEATURES}


@pytest.mark.parametrize("first", [0, 1])
def test_without_half_of_the_features_the_rest_works(first, tmp_path):
    missing = FEATURES[first::2]
    _copy_without(missing, tmp_path)
    page = tmp_path / "run.html"
    python("-c", TRIED, page, folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert page.stat().st_size


@pytest.mark.night
@pytest.mark.parametrize("feature", FEATURES)
def test_without_a_feature_the_unit_tests_of_the_rest_pass(feature, tmp_path):
    _copy_without([feature], tmp_path)
    shutil.copytree(ROOT / "tests", tmp_path / "tests")
    shutil.rmtree(tmp_path / "tests" / "features" / feature, ignore_errors=True)
    for name in kept_files():
        if not name.startswith(("speclab/", "tests/")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    place = {"folder": tmp_path, "PYTHONPATH": str(tmp_path)}
    python("-c", TRIED, tmp_path / "run.html", **place)
    uses = _uses_of(feature)
    gone = []
    # what tests share comes first: a test without it goes, too
    for path in [
        *(tmp_path / "tests/support").glob("*.py"),
        *(tmp_path / "tests").rglob("test_*.py"),
    ]:
        text = path.read_text(encoding="utf-8")
        if uses.search(text) or any(f"from support.{name} " in text for name in gone):
            gone.append(path.stem)
            path.unlink()
    (tmp_path / "tests" / "test_docs.py").unlink()  # the docs name every feature
    unit = ["--ignore=tests/double", "--ignore=tests/notebooks", "--ignore=tests/browser"]
    words = ["-m", "pytest", "-q", "-x", "-p", "no:nbval", *unit, "-m", "not model"]
    python(*words, **place)
