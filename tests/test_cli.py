"""The command line: what it passes on, and that an error is one sentence."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.command import speclab_command
from support.processes import python
from support.refusals import refused

import speclab
from speclab import host
from speclab.errors import SpeclabError
from speclab.trace.metrics import Counts, Metrics

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
LONG = "x" * 5000


@pytest.fixture
def engine(monkeypatch):
    """Stand-ins that record what the command hands to the engine."""
    calls = []
    monkeypatch.setitem(vars(speclab), "load_pair", lambda *a, **k: ("pair", a, k))

    def generate(pair, strategy, prompt, **settings):
        calls.append((pair, strategy, prompt, settings))
        return SimpleNamespace(text=" and [b]on[/b]", metrics=Metrics(Counts(iterations=3)))

    monkeypatch.setitem(vars(speclab), "generate", generate)
    return calls


def test_run_hands_settings_to_the_engine_and_prints_text_and_metrics(engine):
    text = "DynaTree(base_depth=5, node_budget=9)"
    done = speclab_command(
        "run", "--strategy", text, "--device", "cpu", "--max-new-tokens", "7", "On"
    )
    assert done.exit_code == 0, done.output
    ((pair, strategy, prompt, settings),) = engine
    models = {"target": None, "draft": None, "device": "cpu", "dtype": None}
    assert pair == ("pair", ("mini",), models)
    assert strategy == speclab.DynaTree(base_depth=5, node_budget=9)
    assert prompt == "On"
    assert settings["max_new_tokens"] == 7
    assert settings["temperature"] == 0.0
    assert done.stdout.startswith("On and [b]on[/b]\n")
    assert all(name in done.stdout for name in Metrics(Counts()).as_dict())


def test_a_prompt_is_a_message_of_the_user_where_that_is_asked_for(engine):
    done = speclab_command("run", "Why?", "--chat")
    assert done.stdout.startswith(" and [b]on[/b]\n"), "the answer alone"
    assert engine[-1][2] == ({"role": "user", "content": "Why?"},)


STRATEGIES = (LONG, "DynaTree(depth)", f"DynaTree({LONG}=1)", "DynaTree(max_depth=" + "[" * 500)
REFUSED = [
    *[("run", "On", "--strategy", name) for name in STRATEGIES],
    ("run", "On", "--max-new-tokens", "-5"),
]  # fmt: skip
"""Before any model is loaded."""


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words)[:24])
def test_what_is_wrong_is_refused_in_one_short_sentence(words, monkeypatch):
    monkeypatch.setitem(vars(speclab), "load_pair", lambda *a, **k: pytest.fail("loaded"))
    done = speclab_command(*words)
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
    assert python("-c", script) == ""


def test_the_lab_and_the_app_are_started_with_the_words_that_follow(tmp_path, monkeypatch):
    """What would replace this process: a command and its environment."""
    started = []
    monkeypatch.setattr(
        host.os, "execve", lambda program, command, env: started.append((command, env))
    )
    book = tmp_path / "mine.ipynb"
    book.write_text("{}")
    for words in (["lab", "--notebook", book, "--port", 9999], ["app", "--no-browser"]):
        assert speclab_command(*words).exit_code == 0
    (lab, _), (app, environment) = started
    assert lab[:4] == [sys.executable, "-m", "jupyterlab", str(book)]
    assert lab[-3].endswith("default_url=/lab/tree/mine.ipynb"), "for the address that is printed"
    chosen = host.jupyter_command(book, ["--LabApp.default_url=/lab"])
    assert [word for word in chosen if "default_url" in word] == ["--LabApp.default_url=/lab"]
    assert lab[-2:] == ["--port", "9999"]
    assert app[1:3] == ["-m", "voila"]
    assert app[4:] == ["--no-browser"]
    assert len(json.loads(Path(app[3]).read_text())["cells"]) == 1
    assert environment["JUPYTER_PATH"].split(host.os.pathsep)[0].endswith("speclab/jupyter")


def test_the_lab_opens_copies_of_the_notebooks_and_never_writes_over_them(tmp_path, monkeypatch):
    """In a clone, too: JupyterLab saves by itself."""
    monkeypatch.chdir(tmp_path)
    first = Path(host.jupyter_command(None, [])[3])
    assert first.parent == Path("speclab-notebooks")
    assert first.read_bytes() == (NOTEBOOKS / first.name).read_bytes()
    assert (first.parent / "glossary.md").is_file()  # the notebooks link to it
    first.write_text("mine")
    host.jupyter_command(None, [])
    assert first.read_text() == "mine"
    monkeypatch.setattr(host, "COPIES", first)
    with refused(SpeclabError, "cannot be copied to"):
        host.jupyter_command(None, [])
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    with refused(SpeclabError, "pip install voila"):
        host.app_command(None, [])
    with refused(SpeclabError, "pip install jupyterlab"):
        host.jupyter_command(None, [])


def test_the_version_is_printed():
    assert speclab_command("--version").stdout.split() == ["speclab", speclab.__version__]
    assert python("-m", "speclab", "--version").split()[-1] == speclab.__version__
