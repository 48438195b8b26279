"""Views as they are declared and called: drawn, described, tabulated, saved as files, added by an outsider."""

from __future__ import annotations

import gzip
import inspect
import json
import random
import re
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import kaleido
import networkx as nx
import pytest
from draft_samples import routed, stopped
from hypothesis import given, settings
from hypothesis import strategies as st
from kaleido.errors import ChromeNotFoundError
from made_run import made_run
from plotly.graph_objects import Figure
from view_samples import drafted_root, ended_inside, five_nodes, large, odd_tokens, one_node, parse, steps, trace

from speclab import views
from speclab.errors import NotRecordedError, SettingsError, SpeclabError, TraceError
from speclab.trace.records import Step
from speclab.views import export, playback, registry
from speclab.views.export import parts_of, save_view, snapshot
from speclab.views.figures import figure, spec
from speclab.views.palette import THEMES, Theme
from speclab.views.registry import VIEWS, Frame, View

RUN = made_run(4, 12, prompt=150)


def framed(step: Step, **changes) -> Frame:
    return Frame(replace(RUN, steps=(step,), texts=step.texts), 1, **changes)


def checked(drawing, theme="light") -> int:
    """Its size, once HTML in it is whole and plotly takes its figures."""
    for part in parts_of(drawing):
        if isinstance(part, str):
            parse(part)
        else:
            assert part["layout"]["meta"]["label"].endswith(".")
            assert "var(--" not in figure(part, theme).to_json()
    return len(json.dumps(drawing))


@settings(max_examples=12)
@given(steps(), st.data())
def test_every_view_of_any_iteration_at_any_position_is_whole_labelled_and_lets_no_token_break_out(step, data):
    position = data.draw(st.sampled_from(playback.positions(step)))
    selected = data.draw(st.none() | st.integers(0, len(step.tree) - 1))
    theme = data.draw(st.sampled_from(["light", "dark"]))
    for view in VIEWS.values():
        frame = framed(step, position=position, selected=selected)
        checked(view.render(frame), theme)
        parse(view.tabulate(frame))


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_every_view_is_a_small_function_of_its_frame(view):
    samples = (five_nodes, routed, stopped, one_node, odd_tokens, drafted_root, ended_inside, large)
    for step in (sample() for sample in samples):
        frame = framed(step, selected=0)
        drawn = view.render(frame)
        assert drawn == view.render(frame)
        size = checked(drawn)
        assert view.place == "file" or size < 100_000 or view.name == "tables"
        parse(view.tabulate(frame))
        assert isinstance(view.describe(frame), str)
    assert parts_of(view.render(Frame(RUN))) or not view.empty


def test_a_long_run_is_shown_in_a_few_bytes():
    for name in ("metrics", "strategy"):
        assert checked(VIEWS[name].render(Frame(trace(200), 200))) < 100_000


def nodes_figure(step):
    return [f"<p>{len(step.tree)} nodes, from outside</p>", spec([{"y": [len(step.tree)]}], label="Nodes.", height=99)]


def size_table(step):
    return f"<table><tr><td>{step.index}x</td></tr></table>"


@pytest.fixture
def size(monkeypatch):
    monkeypatch.setattr(registry, "VIEWS", dict(VIEWS))
    monkeypatch.setattr(export, "VIEWS", registry.VIEWS)
    return registry.register(View("size", nodes_figure, ("step",), table=size_table))


def test_a_view_of_ones_own_is_one_function_and_one_declaration(size, tmp_path):
    words, drawn = nodes_figure(RUN.steps[1])
    for html in (words, "<summary>Size.</summary>", size_table(RUN.steps[1])):
        assert html in snapshot(Frame(RUN, 2))
    shown = snapshot(Frame(RUN, 2), {"The <tree>.": b"PNG"})
    assert 'alt="The &lt;tree&gt;." src="data:image/png;base64,UE5H"' in shown
    page = save_view(RUN, 2, "size", tmp_path / "size.html").read_text(encoding="utf-8")
    (held,) = re.findall(r'"parts": "([^"]*)"', page)
    assert json.loads(gzip.decompress(b64decode(held))) == [words, drawn]
    assert page.count("<script") == 2


def test_a_picture_needs_a_figure_and_what_draws_it(size, tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match=r"is HTML: save it as \.html"):
        save_view(RUN, 2, "text", tmp_path / "text.svg")
    with pytest.raises(SettingsError, match="no theme 'blue'"):
        save_view(RUN, 2, "size", tmp_path / "size.svg", theme="blue")
    monkeypatch.setattr(kaleido, "calc_fig_sync", lambda *_, **asked: json.dumps(asked).encode())
    asked = json.loads(save_view(RUN, 2, "size", tmp_path / "size.png").read_bytes())
    assert (asked["opts"]["format"], asked["kopts"]) == ("png", {"mathjax": False})
    for missing in (ChromeNotFoundError, ImportError):
        monkeypatch.setattr(kaleido, "calc_fig_sync", Mock(side_effect=missing))
        with pytest.raises(TraceError, match="pip install kaleido"):
            save_view(RUN, 2, "size", tmp_path / "size.svg")


@pytest.mark.parametrize(
    ("view", "cursor", "name", "says"),
    [
        ("forest", 1, "a.svg", "no view 'forest': choose one of timeline, "),
        ("tree", 0, "a.svg", "1 to 4 have"),
        ("tree", 5, "a.svg", "1 to 4 have"),
        ("text", -1, "a.html", "0 to 4 have"),
        ("tree", 1, "a.jpg", "not as '.jpg'"),
        ("tree", 1, "a", "a file without an ending"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(tmp_path, view, cursor, name, says):
    with pytest.raises(SettingsError, match=says):
        save_view(RUN, cursor, view, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_one_sentence(tmp_path):
    with pytest.raises(TraceError, match="choose another folder"):
        save_view(RUN, 1, "text", tmp_path / "missing" / "a.html")


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
    heavy = "{'torch', 'transformers', 'plotly', 'ipywidgets', 'IPython'} & set(sys.modules)"
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
    assert isinstance(views.race(run, 3, theme=theme), Figure)


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


AA = 4.5
"""The least contrast of text that WCAG 2.2 asks for at level AA."""


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_text_can_be_read_on_the_ground(theme: Theme):
    assert contrast(theme.ink, theme.paper) >= 7
    assert contrast(theme.muted, theme.paper) >= AA
