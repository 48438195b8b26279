"""`%%speculate`: what the line says reaches the lab, and what cannot be is one sentence without a traceback."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell
from lab_tools import settle

from speclab import DynaTree, PromptLookup
from speclab.lab import Lab


@pytest.fixture(scope="module")
def shell(pair, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))  # whatever home this machine has
        yield from _shell(pair)


def _shell(pair):
    made = InteractiveShell()
    made.run_line_magic("load_ext", "speclab")
    made.user_ns["mine"] = pair
    yield made
    for lab in [value for value in made.user_ns.values() if isinstance(value, Lab)]:
        assert settle(lab)
        lab.close()
    made.history_manager.end_session()


def cell(shell, line, text="5 17 3 40 11"):
    return shell.run_cell(f"%%speculate {line}\n{text}")


def test_strategy_settings_and_prompt_reach_the_lab_which_is_the_value(shell):
    done = cell(
        shell, "DynaTree node_budget=32 temperature=0.7 max_new_tokens=20 seed=1 top_k=none pair=mine --name kept"
    )
    lab = done.result
    assert isinstance(lab, Lab)
    assert shell.user_ns["kept"] is lab
    assert not lab.state.error
    assert lab.session.strategy == DynaTree(node_budget=32)
    assert lab.session.settings.model_dump(include={"temperature", "max_new_tokens", "seed", "top_k"}) == {
        "temperature": 0.7, "max_new_tokens": 20, "seed": 1, "top_k": None,
    }  # fmt: skip
    assert lab.session.prompt_ids == [5, 17, 3, 40, 11]
    assert lab.step() is not None


def test_a_cell_is_a_message_of_the_user_where_that_is_said(shell):
    for line, expected in (("--chat", [("user", "Hi there")]),
                           ("--system 'Be brief.'", [("system", "Be brief."), ("user", "Hi there")])):  # fmt: skip
        lab = cell(shell, f"Goose {line}", "Hi there").result
        assert [(one["role"], one["content"]) for one in lab.config.prompt.read()] == expected
        lab.close()


def test_without_models_it_shows_at_once_and_loads_when_stepped(shell):
    lab = cell(shell, "PromptLookup", "To be, or not\nto be\n\n").result
    assert lab.session is None
    assert not lab.state.trace.steps, "no recording of another prompt"
    assert lab.config.prompt.read() == "To be, or not\nto be\n", "one line break ends the cell, not the text"
    assert type(lab.config.strategy.read()) is PromptLookup
    lab.close()
    lab = cell(shell, "").result
    assert isinstance(lab, Lab)
    lab.close()


@pytest.mark.parametrize(
    ("line", "text", "says"),
    [
        ("Dynatree", "x", "There is no strategy 'Dynatree': choose one of Autoregressive, "),
        ("DynaTree node_budget=0 --name lab", "x", "node_budget must be greater than"),
        ("DynaTree node_bugdet=3", "x", "has no setting 'node_bugdet'"),
        ("DynaTree temperature=hot", "x", "temperature must be a valid number"),
        ("DynaTree max_new_tokens=0", "x", "max_new_tokens must be greater than"),
        ("node_budget=3", "x", "'node_budget' is no setting of a session"),
        ("DynaTree node_budget = 3", "x", "without spaces around the ="),
        ("DynaTree --name", "x", "--name takes the name of a variable"),
        ("DynaTree --name 2x", "x", "--name takes the name of a variable"),
        ("DynaTree 'seed=1", "x", "A quote is opened"),
        ("DynaTree", "   ", "The cell is empty"),
        ("DynaTree pair=nobody", "x", "nobody"),
        ("DynaTree pair=mine device=cpu", "x", "mine holds models already"),
    ],
)
def test_what_cannot_be_is_one_sentence(shell, capsys, line, text, says):
    done = cell(shell, line, text)
    told = "".join(capsys.readouterr())
    assert not done.success
    assert says in told
    assert "Traceback" not in told
    assert len(told.strip().splitlines()) == 1
    assert "lab" not in shell.user_ns
