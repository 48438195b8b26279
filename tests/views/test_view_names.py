"""`speclab.views`: names that hold in any order of imports, figures that plotly takes, one sentence where one lacks."""

from __future__ import annotations

import inspect
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from draft_samples import routed, stopped
from plotly.graph_objects import Figure
from view_samples import five_nodes, large, odd_tokens, one_node, trace

from speclab import views
from speclab.errors import NotRecordedError, SpeclabError

HOME = Path(views.__file__).parent
MODULES = sorted(path.stem for path in HOME.glob("*.py") if path.stem != "__init__")
OF_STEP = ["tree", "mask", "cache"]


def test_no_module_has_the_name_of_a_public_function():
    assert set(views.__all__) & set(MODULES) == set()
    assert set(dir(views)) == set(views.__all__)
    assert str(inspect.signature(views.tree)).endswith("theme: 'ThemeName' = 'light') -> 'Figure'")
    with pytest.raises(AttributeError, match="no attribute 'forest'"):
        _ = views.forest


@pytest.mark.parametrize("seed", range(3))
def test_names_hold_in_any_order_of_imports_and_load_nothing(seed):
    order = random.Random(seed).sample(MODULES, len(MODULES))
    imports = [f"import speclab.views.{name}" for name in order]
    imports.insert(seed * len(order) // 2, "from speclab.views import " + ", ".join(views.__all__))
    heavy = "{'torch', 'plotly', 'ipywidgets'} & set(sys.modules)"
    check = f"import speclab.views, types; held = [getattr(speclab.views, n) for n in {views.__all__}]"
    code = f"import sys; {'; '.join(imports)}; assert not {heavy}; {check}; assert all(callable(one) for one in held)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_step_and_a_trace_are_figures_that_show_themselves(theme):
    for step in (five_nodes(), one_node(), odd_tokens(), large()):
        for name in OF_STEP:
            assert isinstance(getattr(views, name)(step, theme=theme), Figure), name
        assert isinstance(views.node(step, 0, theme=theme), Figure)
    run = trace(6)
    assert {type(getattr(views, name)(run, theme=theme)) for name in ("timeline", "metrics")} == {Figure}
    shown = "tree", "mask"
    assert all(isinstance(getattr(views, name)(five_nodes(), selected=2, theme=theme), Figure) for name in shown)
    assert isinstance(views.beside(run.steps[:2], ("One", "Other"), theme=theme), Figure)
    assert isinstance(views.drafts(routed(), theme=theme), Figure)
    assert isinstance(views.residual(stopped(), theme=theme), Figure)
    assert isinstance(views.race(run, 3, clock="modelled", theme=theme), Figure)


def test_the_tree_is_a_graph_and_the_text_html():
    graph = views.graph(five_nodes())
    assert isinstance(graph, nx.DiGraph)
    assert {0, 1, 2, 3, 4} <= set(graph)
    said = views.text(trace(2), by="source")
    assert said._repr_html_() == said
    assert "speclab-text" in said


def test_what_a_record_lacks_is_one_sentence(monkeypatch):
    step, run = replace(five_nodes(), residual=None, budget=None, proposals=()), trace(2)
    for name in ("residual", "drafts", "budget"):
        with pytest.raises(NotRecordedError, match=r"\.$"):
            getattr(views, name)(step)
    with pytest.raises(NotRecordedError, match="no such node"):
        views.node(step, 5)
    with pytest.raises(NotRecordedError, match="no iteration yet"):
        views.metrics(replace(run, steps=()))
    with pytest.raises(NotRecordedError, match=r"\.$"):
        views.routing(run)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(SpeclabError, match="pip install plotly"):
        views.tree(step)
