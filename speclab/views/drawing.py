"""The page's functions, called in a JavaScript engine (QuickJS) inside Python.

`page/*.js` has the only drawing of a picture: a pure function from a record to plotly's data and
layout. The lab calls it in the browser, `figure` calls it here, so both show the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from threading import local
from typing import TYPE_CHECKING, Any, Literal, get_args

from speclab.errors import NotRecordedError, SettingsError, SpeclabError
from speclab.trace.records import Step, step_of
from speclab.views.modules import page_with_features
from speclab.views.run_data import SCRIPTS, step_data

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from plotly.graph_objects.layout import Template


Phase = Literal["draft", "flatten", "verify", "accept", "commit", "all"]
ThemeName = Literal["light", "dark"]
_LEVELS = ("draft", "accept")
LONGEST = 60
"""Seconds of the processor that one picture may take."""
_ANSWER = """
function answer(text) {
  const [name, theme, ...values] = JSON.parse(text);
  const value = globalThis[name](...values);
  return JSON.stringify(theme ? inTheme(value, theme) : value) ?? "null";
}
"""
_engines = local()


def figure(theme: ThemeName, name: str, *values: Any) -> Figure:
    """The picture that a function of the page draws, in the colours of a theme.

    Raises:
        SettingsError: there is no such theme.
    """
    from plotly.graph_objects import Figure

    if theme not in get_args(ThemeName):
        raise SettingsError(f"There is no theme {theme!r}: choose light or dark.")
    return Figure(_answer(name, theme, *values))


def template(theme: ThemeName = "light") -> Template:
    """The look of all pictures as a plotly template, for charts of your own, as in
    `plotly.express.line(…, template=views.template())`.

    Raises:
        SettingsError: there is no such theme.
    """
    layout = figure(theme, "Object", {"data": [], "layout": {}}).layout
    paper = {"paper_bgcolor": layout.paper_bgcolor, "plot_bgcolor": layout.plot_bgcolor}
    return layout.template.update(
        layout={**paper, "showlegend": True, "font_size": 13, "legend_y": 1.1}
    )


def call(name: str, *values: Any) -> Any:
    """What a function of the page returns. Values and result are JSON; a Step is one, too.

    Raises:
        SpeclabError: the JavaScript engine is not installed, or the function takes too long.
    """
    return _answer(name, None, *values)


def _answer(name: str, *values: Any) -> Any:
    answer = _engine()
    question = json.dumps([name, *values], default=step_data)
    try:
        text = answer(question)
    except Exception as error:
        if "InternalError: interrupted" not in str(error):
            raise
        raise SpeclabError(
            f"The picture {name} was given up after {LONGEST} seconds: draw an iteration with fewer "
            "nodes."
        ) from None
    return json.loads(text)


def position(phase: Phase, level: int | None) -> Mapping[str, Any]:
    """A position within an iteration for the page's functions.

    Raises:
        SettingsError: there is no such phase or level.
    """
    if phase not in get_args(Phase):
        phases = ", ".join(get_args(Phase))
        raise SettingsError(f"There is no phase {phase!r}: choose one of {phases}.")
    if level is not None and not (phase in _LEVELS and str(level).isdecimal()):
        raise SettingsError(
            f"The phase {phase!r} has no level {level!r}: draft and accept have levels, from 0."
        )
    return {"phase": phase, "level": level}


def node_of(step: Step, node: int | None) -> int | None:
    """The node, if the step has it.

    Raises:
        NotRecordedError: it has not.
    """
    n = len(step_of(step).tree)
    if node is not None and not 0 <= node < n:
        raise NotRecordedError(f"There is no node {node}: the tree has {n} nodes, from 0.")
    return node


@cache
def page_script() -> str:
    """All files of the page but the one that starts an exported page when it is loaded."""
    files = [path for path in SCRIPTS.glob("*.js") if path.name != "exported.js"]
    return page_with_features(*sorted(files))


def _engine() -> Callable[[str], str]:
    """One engine for each thread: its values may not leave the thread that made them."""
    if not hasattr(_engines, "answer"):
        try:
            from quickjs import Context  # the module of quickjs-ng
        except ImportError:
            raise SpeclabError(
                "Pictures in Python need a JavaScript engine: `pip install quickjs-ng`."
            ) from None
        context = Context()
        context.set_time_limit(LONGEST)  # of each call
        context.eval(page_script() + _ANSWER)
        _engines.answer = context.get("answer")
    answer: Callable[[str], str] = _engines.answer
    return answer
