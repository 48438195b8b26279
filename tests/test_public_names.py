"""What a user types and reads: names, arguments, and what a cell shows for an object."""

import inspect
from importlib import import_module

import plotly.io
import pytest
from support.records import ran
from support.refusals import refused

import speclab
from speclab.errors import SettingsError
from speclab.settings import SessionSettings

NAMES = [getattr(speclab, name) for name in speclab.__all__]
MODULES = [value.__name__ for value in NAMES if inspect.ismodule(value)]
PROMPT = "Once upon a time"


@pytest.mark.parametrize("name", ["speclab", "speclab.course", *MODULES])
def test_dir_lists_public_names_only(name):
    module = import_module(name)
    for listed in dir(module):
        value = getattr(module, listed)
        assert listed == "__version__" or not listed.startswith("_")
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__module__.startswith("speclab"), listed


def test_public_names_exist_and_a_misspelt_one_is_answered_with_the_right_one():
    """Every error and every strategy is among them."""
    errors = {name for name, kind in vars(speclab.errors).items() if isinstance(kind, type)}
    assert errors < {*speclab.__all__}
    for name in {*speclab.__all__} - {"__version__", "NodeBudget"}:
        assert getattr(speclab, name).__name__.rpartition(".")[2] == name
    for name, settings in speclab.strategies().items():
        if settings.__module__.startswith("speclab."):  # another test's cell may have defined one
            assert getattr(speclab, name) is settings
    for wrong, right in {"Dynatree": "DynaTree", "load_trce": "load_trace", "Nonsense": ""}.items():
        with pytest.raises(AttributeError, match=rf"no attribute.*{right}"):
            getattr(speclab, wrong)


@pytest.mark.parametrize("decode", [speclab.Session, speclab.generate])
def test_the_arguments_of_a_session_are_named_and_have_their_defaults(decode):
    named = inspect.signature(decode).parameters
    for name, field in SessionSettings.model_fields.items():
        assert named[name].default == field.default
    with refused(SettingsError, "max_new_tokens"):
        decode(speclab.load_pair(), speclab.DynaTree(), PROMPT, max_new_token=8)


def _objects():
    pair = speclab.load_pair()
    tree = speclab.DynaTree(node_budget=12)
    session = ran(pair, tree, PROMPT, max_new_tokens=16)
    replayer = speclab.Replayer(session)
    *_, curve = speclab.curves.sweep(replayer, tree, "max_branches", (2, 3))
    return {
        "pair": pair,
        "target": pair.target,
        "head": pair.heads[0],
        "session": session,
        "trace": session.trace,
        "step": session.steps[0],
        "tree": session.steps[0].tree,
        "metrics": session.metrics,
        "strategy": tree,
        "generation": speclab.generate(pair, tree, PROMPT, max_new_tokens=16),
        "comparison": speclab.compare(pair, {"tree": tree}, PROMPT, max_new_tokens=8),
        "what if": speclab.what_if(session.steps[0], tree.changed(node_budget=4)),
        "replayer": replayer,
        "replay": replayer.replay(tree),
        "curve": curve,
    }


@pytest.mark.model
def test_a_cell_shows_one_line_and_a_picture_a_text_or_a_table_beside_it(monkeypatch):
    """The line is the same in every run."""
    monkeypatch.setattr(plotly.io.renderers, "default", "plotly_mimetype")
    for (name, value), again in zip(_objects().items(), _objects().values(), strict=True):
        assert repr(value) == repr(again), name
        assert "\n" not in repr(value)
        assert len(repr(value)) <= 400
        bundle = getattr(value, "_repr_mimebundle_", dict)()
        if name in {"pair", "session", "trace", "comparison", "what if", "replay"}:
            assert bundle["text/html"].startswith("<")
        if name == "step":
            assert "application/vnd.plotly.v1+json" in bundle
