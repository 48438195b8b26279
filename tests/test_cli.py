"""The command line: what it passes on, and that an error is one sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import speclab
from speclab import host
from speclab.cli import app
from speclab.errors import SpeclabError

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
HOSTED = (
    "JUPYTERHUB_USER",
    "COLAB_RELEASE_TAG",
    "KAGGLE_KERNEL_RUN_TYPE",
    "SSH_CONNECTION",
    "TERM_PROGRAM",
    "VSCODE_PID",
)


@pytest.fixture
def cli():
    return lambda *words: CliRunner().invoke(app, list(words))


@pytest.fixture
def engine(monkeypatch):
    """Stand-ins that record what the command hands to the engine."""
    calls = []

    class Chosen(SimpleNamespace):
        pass

    metrics = SimpleNamespace(**dict.fromkeys(speclab.cli._METRICS, 2.5))
    monkeypatch.setitem(vars(speclab), "strategies", lambda: {"Chosen": Chosen})
    monkeypatch.setitem(vars(speclab), "load_pair", lambda *a, **k: ("pair", a, k))

    def generate(pair, strategy, prompt, **settings):
        calls.append((pair, strategy, prompt, settings))
        return SimpleNamespace(text=" and [b]on[/b]", metrics=metrics)

    monkeypatch.setitem(vars(speclab), "generate", generate)
    return calls


def test_run_hands_settings_to_the_engine_and_prints_text_and_metrics(cli, engine):
    words = [
        "run",
        "--strategy",
        "Chosen",
        "--set",
        "depth=5",
        "--set",
        "root=drafted",
        "--set",
        "history=true",
    ]
    done = cli(*words, "--device", "cpu", "--max-new-tokens", "7", "On")
    assert done.exit_code == 0, done.output
    ((pair, strategy, prompt, settings),) = engine
    assert pair == ("pair", ("mini",), {"target": None, "draft": None, "device": "cpu", "dtype": None})
    assert vars(strategy) == {"depth": 5, "root": "drafted", "history": True}
    assert prompt == "On"
    assert settings["max_new_tokens"] == 7
    assert settings["temperature"] == 0.0
    assert done.stdout.startswith("On and [b]on[/b]\n")
    assert all(name in done.stdout for name in speclab.cli._METRICS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--strategy", "Nonsense"], "There is no strategy 'Nonsense': choose one of Chosen."),
        (["--strategy", "Chosen", "--set", "depth"], "--set takes NAME=VALUE, not 'depth'."),
    ],
)
def test_a_users_error_is_one_sentence(cli, engine, words, sentence):
    done = cli("run", *words, "On")
    assert done.exit_code == 1
    assert done.stderr == sentence + "\n"
    assert engine == []


def test_an_engine_error_in_a_real_process_shows_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "speclab.cli", "lab", "--notebook", "nowhere.ipynb"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("There is no notebook nowhere.ipynb")


def test_doctor_names_versions_device_threads_and_memory(cli):
    done = cli("doctor")
    assert done.exit_code == 0, done.output
    for fact in ("speclab", "torch", "transformers", "device", "threads", "memory", "jupyter"):
        assert fact in done.stdout
    assert speclab.__version__ in done.stdout
    assert "target of mini lean draft of mini lean" in " ".join(done.stdout.split()), "which way their passes go"


def test_train_passes_its_words_on(cli):
    done = cli("train", "--help")
    assert done.exit_code == 0, done.output
    assert "speclab train" in done.stdout


def test_the_lab_opens_the_notebook_that_is_named_and_passes_other_words_on(cli, monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(host.os, "execve", lambda program, command, env: started.append(command))
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text("{}")
    done = cli("lab", "--no-browser", "--notebook", str(notebook), "--port", "9999")
    assert done.exit_code == 0, done.output
    (command,) = started
    assert command[:4] == [sys.executable, "-m", "jupyterlab", str(notebook)]
    assert command[-3:] == ["--no-browser", "--port", "9999"]


def test_jupyterlab_finds_its_announcements_switched_off(monkeypatch):
    """Asked of JupyterLab itself, in the environment that the command gives it."""
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "elsewhere")
    environment = host.jupyter_environment()
    assert environment["JUPYTER_CONFIG_PATH"].endswith(f"{host.os.pathsep}elsewhere")
    ask = "from jupyterlab_server.config import get_static_page_config as ask; print(ask(level='all'))"
    done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True)
    assert "'@jupyterlab/apputils-extension:announcements': True" in done.stdout


def test_the_lab_notebook_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert host.jupyter_command(None, [])[3].endswith("notebooks/00_lab.ipynb")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As a wheel leaves it: the package in one folder, the notebooks in another, a record of both; no source around."""
    site, shipped = tmp_path / "site-packages", tmp_path / "share" / "speclab" / "notebooks"
    shutil.copytree(NOTEBOOKS, shipped)
    (site / "speclab-1.dist-info").mkdir(parents=True)
    (site / "speclab-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: speclab\nVersion: 1\n")
    names = [f"../share/speclab/notebooks/{path.name},," for path in shipped.iterdir()]
    (site / "speclab-1.dist-info" / "RECORD").write_text("\n".join(["speclab/host.py,,", *names]))
    monkeypatch.setattr(host, "__file__", str(site / "speclab" / "host.py"))
    monkeypatch.setattr(host, "distribution", lambda name: Distribution.at(site / "speclab-1.dist-info"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_an_installed_wheel_opens_a_copy_of_its_notebooks_and_never_writes_over_it(installed):
    assert host.jupyter_command(None, [])[3] == "speclab-notebooks/00_lab.ipynb"
    copies = installed / "speclab-notebooks"
    assert {path.name for path in copies.iterdir()} == {path.name for path in NOTEBOOKS.glob("*.ipynb")}
    for name in ("00_lab.ipynb", "01_one_iteration.ipynb"):
        (copies / name).write_text("mine")
    assert host.app_command(None, [])[3] == "speclab-notebooks/00_lab.ipynb"
    assert (copies / "00_lab.ipynb").read_text() == "mine"
    (copies / "00_lab.ipynb").unlink()
    host.jupyter_command(None, [])
    assert (copies / "00_lab.ipynb").read_bytes() == (NOTEBOOKS / "00_lab.ipynb").read_bytes()
    assert (copies / "01_one_iteration.ipynb").read_text() == "mine"


def test_where_no_copy_can_be_made_it_is_said(installed):
    (installed / "speclab-notebooks").write_text("in the way")
    with pytest.raises(SpeclabError, match=r"cannot be copied to .*: run this in a folder of yours"):
        host.jupyter_command(None, [])


def test_what_a_wheel_takes_along_is_where_the_lab_looks_for_it():
    """The build reads this table; the notebooks lie in the source where it says."""
    shared = tomllib.loads((NOTEBOOKS.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert list(shared["wheel"]["shared-data"]) == ["notebooks"]
    assert (NOTEBOOKS / host.LAB_NOTEBOOK.name).is_file()


def test_without_jupyterlab_the_lab_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    with pytest.raises(SpeclabError, match=r"pip install 'speclab\[lab\]'"):
        host.jupyter_command(None, [])


def test_the_app_is_the_same_notebook_in_voila(cli, monkeypatch):
    started = []
    monkeypatch.setattr(host.os, "execve", lambda program, command, env: started.append((command, env)))
    done = cli("app", "--no-browser")
    assert done.exit_code == 0, done.output
    ((command, environment),) = started
    assert command[1:3] == ["-m", "voila"]
    assert command[3].endswith("notebooks/00_lab.ipynb")
    assert command[4:] == ["--no-browser"]
    assert environment["JUPYTER_PATH"].split(host.os.pathsep)[0].endswith("speclab/jupyter")


def test_without_voila_the_app_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    with pytest.raises(SpeclabError, match="pip install voila"):
        host.app_command(None, [])


@pytest.mark.parametrize(
    ("variable", "advice"),
    [
        ("SSH_CONNECTION", "ssh -L 8888"),
        ("JUPYTERHUB_USER", "hosted notebook service"),
        ("COLAB_RELEASE_TAG", "enable_custom_widget_manager"),
        ("VSCODE_PID", "jupyter.widgetScriptSources"),
    ],
)
def test_advice_fits_the_place(monkeypatch, variable, advice):
    for name in HOSTED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(host, "_in_container", lambda: False)
    assert "opens a browser" in host.jupyter_advice()
    monkeypatch.setenv(variable, "x")
    assert advice in host.jupyter_advice()


LONG = "x" * 5000


@pytest.mark.parametrize(
    "words", [("bench", "report", LONG), ("bench", "--workload", LONG), ("run", "x", "--target", LONG)]
)
def test_a_path_that_no_file_can_have(cli, words):
    done = cli(*words)
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert len(done.stderr) <= 501


@pytest.mark.parametrize("command", ["lab", "app"])
def test_a_notebook_of_a_name_that_no_file_can_have(cli, command):
    done = cli(command, "--notebook", LONG)
    assert done.exit_code == 1
    assert "There is no notebook" in done.stderr
    assert len(done.stderr) <= 501


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "self=1"), ("--set", "model_config=1"), ("--set", "__class__=1"), ("--set", f"{LONG}=1"),
        ("--set", "node_budget=" + "7" * 5000), ("--set", "node_budget=" + "[" * 5000), ("--strategy", LONG),
        ("--set", "depth=\udcff"), ("--set", LONG),
    ],
    ids=lambda words: words[1][:16],
)  # fmt: skip
def test_whatever_is_set_is_refused_in_one_short_sentence(cli, words):
    done = cli("run", "text", *words)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert len(done.stderr.splitlines()) == 1
    assert len(done.stderr) <= 501
