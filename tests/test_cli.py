"""The command line: what it passes on, and that an error is one sentence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import speclab
from speclab import host
from speclab.cli import app
from speclab.errors import SpeclabError
from speclab.settings import assignments
from speclab.trace.metrics import Counts, Metrics

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
LONG = "x" * 5000


@pytest.fixture
def cli():
    return lambda *words: CliRunner().invoke(app, list(words))


@pytest.fixture
def engine(monkeypatch):
    """Stand-ins that record what the command hands to the engine."""
    calls = []
    monkeypatch.setitem(vars(speclab), "strategies", lambda **_: {"Chosen": SimpleNamespace})
    monkeypatch.setitem(vars(speclab), "load_pair", lambda *a, **k: ("pair", a, k))

    def generate(pair, strategy, prompt, **settings):
        calls.append((pair, strategy, prompt, settings))
        return SimpleNamespace(text=" and [b]on[/b]", metrics=Metrics(Counts(iterations=3)))

    monkeypatch.setitem(vars(speclab), "generate", generate)
    return calls


def test_run_hands_settings_to_the_engine_and_prints_text_and_metrics(cli, engine):
    words = ["--set", "depth=5", "--set", "root=drafted", "--set", "history=true", "--device", "cpu"]
    done = cli("run", "--strategy", "Chosen", *words, "--max-new-tokens", "7", "On")
    assert done.exit_code == 0, done.output
    ((pair, strategy, prompt, settings),) = engine
    assert pair == ("pair", ("mini",), {"target": None, "draft": None, "device": "cpu", "dtype": None})
    assert vars(strategy) == {"depth": 5, "root": "drafted", "history": True}
    assert prompt == "On"
    assert settings["max_new_tokens"] == 7
    assert settings["temperature"] == 0.0
    assert done.stdout.startswith("On and [b]on[/b]\n")
    assert all(name in done.stdout for name in Metrics(Counts()).as_dict())


def test_a_prompt_is_a_message_of_the_user_where_that_is_asked_for(cli, engine):
    for words, roles in ((["--chat"], ["user"]), (["--system", "Be brief."], ["system", "user"])):
        done = cli("run", "--strategy", "Chosen", "Why?", *words)
        assert done.stdout.startswith(" and [b]on[/b]\n"), "the answer alone"
        assert [message["role"] for message in engine[-1][2]] == roles


def test_what_is_assigned_is_a_value_or_a_text():
    words = ["a=1", "b=-0.5", "c=[1, 2]", "d=True", "e=none", "f=DynaTree(max_depth=3)", "g=", "h=1=2", 'i="x"']
    expected = {"a": 1, "b": -0.5, "c": [1, 2], "d": True, "e": None, "f": "DynaTree(max_depth=3)", "g": "", "h": "1=2"}
    assert assignments(words) == expected | {"i": "x"}


REFUSED = [
    ("run", "On", "--strategy", "Nonsense"),
    ("run", "On", "--strategy", LONG),
    ("run", "On", "--target", LONG),
    *[
        ("run", "On", "--set", word)
        for word in (
            "depth", LONG, "=3", "self=1", "model_config=1", "__class__=1", f"{LONG}=1", "depth=\udcff",
            "node_budget=" + "7" * 5000, "node_budget=" + "[" * 5000,
        )
    ],
    ("lab", "--notebook", LONG),
    ("app", "--notebook", "nowhere.ipynb"),
]  # fmt: skip


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words)[:24])
def test_whatever_is_wrong_is_refused_in_one_short_sentence(cli, words):
    done = cli(*words)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) <= 501


def test_help_is_there_before_any_model_library_is():
    script = """
import sys
from typer.testing import CliRunner
from speclab.cli import app
for words in ([], *([command.name or command.callback.__name__] for command in app.registered_commands)):
    done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0 and "Usage:" in done.output, (words, done.output)
    assert sys.modules.keys().isdisjoint({"torch", "transformers"}), words
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_error_in_a_real_process_shows_no_traceback():
    command = [sys.executable, "-m", "speclab.cli", "lab", "--notebook", "nowhere.ipynb"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("There is no notebook nowhere.ipynb")


@pytest.mark.model
def test_doctor_names_versions_device_threads_and_memory(cli):
    done = cli("doctor")
    assert done.exit_code == 0, done.output
    for fact in ("speclab", "torch", "transformers", "device", "threads", "memory", "jupyter"):
        assert fact in done.stdout
    assert speclab.__version__ in done.stdout
    said = " ".join(done.stdout.split())
    for role in ("target", "draft"):
        assert re.search(rf"{role} of mini lean(, packed)?, float32", said), "which way its passes go"
    assert re.search(r"SmolLM2 (not here: .*fetch smollm2|\d.* in /.*--remove)", said)


@pytest.fixture
def started(monkeypatch):
    """What would replace this process: commands and their environments."""
    commands = []
    monkeypatch.setattr(host.os, "execve", lambda program, command, env: commands.append((command, env)))
    return commands


def test_the_lab_opens_the_notebook_that_is_named_and_passes_other_words_on(cli, started, tmp_path):
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text("{}")
    done = cli("lab", "--no-browser", "--notebook", str(notebook), "--port", "9999")
    assert done.exit_code == 0, done.output
    ((command, _),) = started
    assert command[:4] == [sys.executable, "-m", "jupyterlab", str(notebook)]
    assert command[-3:] == ["--no-browser", "--port", "9999"]


def test_the_app_shows_a_notebook_of_one_cell_in_voila(cli, started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli("app", "--no-browser")
    assert done.exit_code == 0, done.output
    ((command, environment),) = started
    assert command[1:3] == ["-m", "voila"]
    assert len(json.loads(Path(command[3]).read_text())["cells"]) == 1
    assert command[4:] == ["--no-browser"]
    assert environment["JUPYTER_PATH"].split(host.os.pathsep)[0].endswith("speclab/jupyter")


def test_a_bad_prompt_or_length_is_refused_before_models_are_loaded(cli, engine, monkeypatch):
    monkeypatch.setitem(vars(speclab), "load_pair", lambda *a, **k: pytest.fail("loaded"))
    for words in (["run", ""], ["run", "On", "--max-new-tokens", "-5"]):
        done = cli(*words, "--strategy", "Chosen")
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1


def test_jupyterlab_finds_its_announcements_switched_off(monkeypatch):
    """Asked of Jupyter's own reader, in the environment that the command gives it."""
    from jupyterlab_server.config import get_static_page_config

    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "elsewhere")
    path = host.jupyter_environment()["JUPYTER_CONFIG_PATH"]
    assert path.endswith(f"{host.os.pathsep}elsewhere")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", path)
    disabled = get_static_page_config(level="all")["disabledExtensions"]
    assert disabled["@jupyterlab/apputils-extension:announcements"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As a wheel leaves it: the package in one folder, the notebooks in another, a record of both; no source around."""
    site, shipped = tmp_path / "site-packages", tmp_path / "share" / "speclab" / "notebooks"
    shipped.mkdir(parents=True)
    for path in (*sorted(NOTEBOOKS.glob("*.ipynb"))[:2], NOTEBOOKS / "glossary.md"):
        shutil.copyfile(path, shipped / path.name)
    (site / "speclab-1.dist-info").mkdir(parents=True)
    (site / "speclab-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: speclab\nVersion: 1\n")
    names = [f"../share/speclab/notebooks/{path.name},," for path in shipped.iterdir()]
    (site / "speclab-1.dist-info" / "RECORD").write_text("\n".join(["speclab/host.py,,", *names]))
    monkeypatch.setattr(host, "__file__", str(site / "speclab" / "host.py"))
    monkeypatch.setattr(host, "distribution", lambda name: Distribution.at(site / "speclab-1.dist-info"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize("place", ["installed", "clone"])
def test_the_lab_opens_copies_of_the_notebooks_and_never_writes_over_them(place, request, tmp_path, monkeypatch):
    """In a clone, too: JupyterLab saves by itself."""
    if place == "installed":
        request.getfixturevalue("installed")
    else:
        monkeypatch.chdir(tmp_path)
    first = Path(host.jupyter_command(None, [])[3])
    assert first.parent == Path("speclab-notebooks")
    assert first.read_bytes() == (NOTEBOOKS / first.name).read_bytes()
    assert (first.parent / "glossary.md").is_file()  # the notebooks link to it
    first.write_text("mine")
    host.jupyter_command(None, [])
    assert first.read_text() == "mine"


def test_where_no_copy_can_be_made_it_is_said(installed):
    (installed / "speclab-notebooks").write_text("in the way")
    with pytest.raises(SpeclabError, match=r"cannot be copied to"):
        host.jupyter_command(None, [])


@pytest.mark.parametrize(("command", "way_out"), [(host.jupyter_command, "jupyterlab"), (host.app_command, "voila")])
def test_what_is_not_installed_is_said_with_the_way_to_get_it(monkeypatch, command, way_out):
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    with pytest.raises(SpeclabError, match=f"pip install {way_out}"):
        command(None, [])


@pytest.mark.parametrize(
    ("variable", "advice"), [("SSH_CONNECTION", "ssh -L 8888"), ("JUPYTERHUB_USER", "hosted notebook service")]
)
def test_advice_fits_the_place(monkeypatch, variable, advice):
    monkeypatch.setattr(host.os, "environ", {})
    monkeypatch.setattr(host.Path, "exists", lambda path: False)  # no container
    assert "opens a browser" in host.jupyter_advice()
    monkeypatch.setattr(host.os, "environ", {variable: "x"})
    assert advice in host.jupyter_advice()
