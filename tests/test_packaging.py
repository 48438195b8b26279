"""The three lists of packages agree, nothing names a registry, importing speclab is cheap, its names exist."""

import re
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.processes import python

import speclab
from speclab import host

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA_NAMES = {"pytorch": "torch", "python-build": "build"}
NOT_OURS = {"python", "pip"}


def _ranges(lines):
    requirements = [Requirement(line) for line in lines]
    named = {
        CONDA_NAMES.get(r.name, canonicalize_name(r.name)): str(r.specifier) for r in requirements
    }
    assert len(named) == len(requirements), "a package is named twice"
    return named


def _pyproject(*extras):
    """Ranges of the dependencies and of some extras, by name."""
    project = PYPROJECT["project"]
    lines = [line for extra in extras for line in project["optional-dependencies"][extra]]
    return _ranges(project["dependencies"] + lines)


def test_environment_has_the_packages_and_ranges_of_the_lab_and_its_tests():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (by_pip,) = [entry["pip"] for entry in listed if isinstance(entry, dict)]
    assert "-e ." in by_pip
    environment = _ranges(
        [e for e in listed if isinstance(e, str)] + [e for e in by_pip if e != "-e ."]
    )
    assert environment.pop("python") == PYPROJECT["project"]["requires-python"]
    assert {name: spec for name, spec in environment.items() if name not in NOT_OURS} == _pyproject(
        "test"
    )


def test_every_package_is_pinned_exactly_and_within_its_range():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = _ranges([line for line in lines if not line.startswith("#")])
    assert [name for name, spec in pins.items() if not spec.startswith("==")] == []
    for name, spec in _pyproject("dev", "site", "test").items():
        version = pins[name].removeprefix("==")
        assert Requirement(name + spec).specifier.contains(version), (
            f"{name} {version} is outside {spec}"
        )
    assert "+" not in pins["torch"], "no build suffix"


BROUGHT = {
    "IPython",
    "annotated_types",
    "traitlets",
    "tqdm",
    "pydantic_core",
    "quickjs",
    "typing_extensions",
}
"""By ipykernel, ipywidgets, transformers, pydantic and quickjs-ng."""
ASKED_FOR = {"distributed", "kaleido", "segno", "voila"}
"""Imported where they are needed; one sentence says what to install."""


def test_what_the_package_and_the_course_import_is_installed_with_it():
    """The dependencies alone run every notebook; what an extra brings is imported late."""
    code = [path.read_text() for path in (ROOT / "speclab").rglob("*.py")]
    code += [path.read_text() for path in (ROOT / "notebooks").glob("*.py")]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        code += [re.sub(r"(?m)^ *%.*", "", c.source) for c in cells if c.cell_type == "code"]
    lines = re.findall(r"(?m)^ *(?:from|import) (\w+)(?=[\w.]* import| as |$)", "\n".join(code))
    installed = {name.replace("-", "_") for name in _ranges(PYPROJECT["project"]["dependencies"])}
    beside = {path.stem for path in (ROOT / "notebooks").glob("*.py")}
    known = installed | BROUGHT | ASKED_FOR | beside | {"speclab"}
    assert {*lines} <= known | {*sys.stdlib_module_names}


def test_workflows_run_every_tier_and_the_planted_faults():
    tiers = re.search(r"^test: ([a-z ]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    for name, targets in (("ci", {"check", *tiers.split()}), ("nightly", {"faults", "night"})):
        text = (ROOT / ".github/workflows" / f"{name}.yml").read_text()
        runs = " ".join(re.findall(r"(?:make|tier:) (.*)", text))
        assert targets <= {*re.findall(r"\w+", runs)}


def test_changes_citation_and_package_are_of_one_version():
    project = PYPROJECT["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title"} <= set(cited)  # what its schema requires
    same = {
        "version": speclab.__version__,
        "authors": project["authors"],
        "license": project["license"],
    }
    assert same.items() <= cited.items()
    assert cited["repository-code"] == project["urls"]["Repository"]
    assert f"git clone {cited['repository-code']} " in (ROOT / "README.md").read_text("utf-8")
    released = re.findall(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert released[0] == speclab.__version__


def test_importing_speclab_imports_only_what_imports_nothing():
    """Counted, not timed; a whole module comes once it is named."""
    loaded = "print(*sorted(m for m in sys.modules if m.startswith('speclab') or m in {'numpy', 'torch'}))"
    before, after = python(
        "-c", f"import sys, speclab; {loaded}; speclab.theory; {loaded}"
    ).splitlines()
    assert {*before.split()} == {
        "speclab",
        *(f"speclab.{name}" for name in ("display", "errors", "features")),
    }
    assert "speclab.theory" in after
    assert "torch" not in after


def test_a_lab_is_there_before_the_libraries_of_models():
    code = "import sys, speclab; speclab.Lab; print(*sorted({'torch', 'transformers'} & {*sys.modules}))"
    assert python("-c", code).split() == []


def test_an_import_leaves_the_process_as_it_was_and_kernels_of_the_lab_soon_stop_spinning(
    monkeypatch,
):
    """A person's browser has the other core, where spinning threads wait for each other."""
    code = (
        "import os, sys; before = dict(os.environ); sys.modules['ipykernel'] = sys; import speclab"
    )
    assert python("-c", f"{code}; print(before == dict(os.environ))").strip() == "True"
    monkeypatch.delenv(host.SPIN, raising=False)
    assert host.jupyter_environment()[host.SPIN] == host.SPINS
    monkeypatch.setenv(host.SPIN, "7")
    assert host.jupyter_environment()[host.SPIN] == "7", "what a person has set stays"


ABSENT = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import speclab
"""
MODELS = {"torch", "transformers", "tokenizers", "safetensors"}
LAB = {"plotly", "ipywidgets", "IPython", "ipykernel", "traitlets", "jupyterlab", "jupyter_client"}


def test_a_trace_opens_and_is_drawn_without_torch():
    python(
        "-c",
        ABSENT.format(absent=MODELS) + "speclab.load_trace, speclab.views.tree, speclab.theory",
    )


def test_a_missing_extra_is_one_sentence_with_the_way_out():
    attempt = "try:\n    speclab.Lab\nexcept speclab.SpeclabError as error:\n    print(error)"
    said = python("-c", ABSENT.format(absent=LAB) + attempt)
    assert said.strip().removesuffix(".").rpartition("pip install ")[2] in LAB


COMMANDS = """
import json, pathlib
from typer.testing import CliRunner
from speclab import host
from speclab.cli import app

host.start = lambda command: None
log = {{"prompt": "Once", "answer": " upon a time"}}
pathlib.Path("log.jsonl").write_text(json.dumps(log))
ran = {{name.name or name.callback.__name__ for name in app.registered_commands}} | {{"course"}}
for line in {lines!r}.strip().splitlines():
    words = line.split()
    ran.discard(words[0])
    done = CliRunner().invoke(app, words)
    assert done.exception is None or type(done.exception) is SystemExit, (line, done.exception)
    assert done.exit_code == 0 or done.stderr.count("\\n") == 1, (line, done.output)
    print(done.output)
assert not ran, ran
"""
LINES = """
doctor
run Once --max-new-tokens 2 --strategy Autoregressive
live out
fetch another
bench --strategy Another
replay log.jsonl --strategy Goose
clinic log.jsonl --target mini
diff log.jsonl log.jsonl
same log.jsonl log.jsonl --target mini
read log.jsonl
rows mini --rows 1,2
open nothing
course export students
lab
app
"""
OTHERS = {"pandas", "networkx", "voila", "kaleido", "quickjs", "gguf", "accelerate"}


@pytest.mark.model
@pytest.mark.parametrize("absent", [MODELS, LAB | OTHERS], ids=["models", "lab and others"])
def test_every_command_says_in_one_sentence_what_is_not_installed(absent, tmp_path, monkeypatch):
    """The doctor names it and says what it can."""
    monkeypatch.chdir(tmp_path)
    script = ABSENT.format(absent=absent) + COMMANDS.format(lines=LINES)
    said = python("-c", script)
    assert {*re.findall(r"pip install (\w+)", said)} & absent
    assert "jupyter " in said, "the doctor's last line"


def test_the_cache_is_where_its_variable_says_or_somewhere_at_least(tmp_path):
    """For models and measured times; without a home, too."""
    cache = "from speclab.files import cache_folder; from speclab.loading.presets import SMOLLM2; "
    named = f"import os; os.environ['SPECLAB_CACHE'] = {str(tmp_path)!r}; {cache}"
    assert str(tmp_path) in python("-c", named + "print(SMOLLM2)")
    nobody = (
        "import os, pwd\n"
        "for name in ('HOME', 'SPECLAB_CACHE', 'XDG_CACHE_HOME'): os.environ.pop(name, None)\n"
        "def unknown(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = unknown\n"
    )
    assert Path(python("-c", nobody + cache + "print(SMOLLM2)").strip()).is_absolute()
