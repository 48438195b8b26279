"""A run for the page: a header and its steps as a trace writes them; the page's scripts and style."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from inspect import getdoc
from pathlib import Path
from typing import Any

from speclab.drafters.base import Strategy, measure_of, small_matters
from speclab.features import parts_named
from speclab.trace.codecs import TreeColumns, adapter
from speclab.trace.columns import computed
from speclab.trace.records import Event, Step, Trace
from speclab.tree import DraftTree

Data = dict[str, Any]
HERE = Path(__file__).parent
SCRIPTS = HERE / "page"
"""The page's ES modules."""
WORDS: Data = json.loads((HERE / "words.json").read_text(encoding="utf-8"))
"""The sentences of the page and of its features, by group."""
for _path in parts_named("words.json"):
    for _group, _entries in json.loads(_path.read_text(encoding="utf-8")).items():
        if isinstance(_entries, dict):
            _entries = WORDS.get(_group, {}) | _entries
        WORDS[_group] = _entries
LOOKS: Data = json.loads((HERE / "looks.json").read_text(encoding="utf-8"))
"""Colours and symbols."""
_OF_RUN: Any = {
    **dict.fromkeys(("index", "tree", "accepted", "committed", "bonus", "root_choice"), True),
    **dict.fromkeys(("counts", "seconds", "findings", "texts", "note", "missing"), True),
    "nodes": {"__all__": {"token", "target_choice", "verdict"}},
}
_STYLE = """
:root { color-scheme: light dark }
body { margin: 0; padding: 8px 20px 24px; background: #fff }
@media (prefers-color-scheme: dark) {
  :root { --jp-ui-font-color1: #e8eaed; --jp-ui-font-color2: #a4acb5; --jp-border-color1: #5a626b;
    --jp-border-color2: #3a4048; --jp-layout-color1: #111111; --jp-error-color1: #ff7b72 }
  body { background: #111 }
}
"""


def run_header(trace: Trace) -> Data:
    """What the page needs of a run besides its steps."""
    dump = adapter(Trace).dump_python
    data: Data = dump(trace, mode="json", exclude={"steps", "messages"})
    return {**data, "prompt_parts": trace.prompt_parts()}


def step_data(step: Step | Event) -> Data:
    """A step, or an event of it, as a trace writes it, which is what the page draws.

    A step has the columns of its nodes that follow from it as `columns`.
    """
    kind: Any = type(step)
    data: Data = adapter(kind).dump_python(step, mode="json")
    if isinstance(step, Step):
        data["columns"] = computed(step)
    return data


def run_steps(trace: Trace, cursor: int | None = None) -> list[Data]:
    """The steps up to `cursor`, with the columns that pictures of a run need."""
    dump = adapter(Step).dump_python
    return [dump(step, mode="json", include=_OF_RUN) for step in trace.steps[:cursor]]


def tree_data(tree: DraftTree, recorded: Sequence[int | None]) -> Data:
    """Another tree of a step, as the page lays it over the step's own."""
    return {
        "tree": adapter(TreeColumns).dump_python(tree, mode="json"),
        "recorded": list(recorded),
        "accepted": None,
        "bonus": None,
        "unknown": [],
        "settled": False,
        "texts": {},
    }


def strategy_data(kind: type[Strategy]) -> Data:
    """A strategy for the page: its presets, and its JSON schema with `x-measure` and `x-small` for sliders."""
    schema: Data = kind.model_json_schema()
    schema.pop("description", None)
    for name, field in kind.model_fields.items():
        entry = schema["properties"][name]
        entry.pop("title", None)
        entry["x-symbol"] = field.title or ""
        entry["x-measure"] = measure_of(field)
        entry["x-small"] = small_matters(field)
    presets = []
    for name, preset in kind.presets().items():
        presets.append({"name": name, "settings": preset.model_dump(mode="json")})
    return {
        "name": kind.__name__,
        "group": kind.group,
        "doc": (getdoc(kind) or "").partition("\n\n")[0].replace("\n", " "),
        "schema": schema,
        "ascending": [list(names) for names in kind.ascending],
        "presets": presets,
    }


def style() -> str:
    """The page's style sheet."""
    return (HERE / "page.css").read_text(encoding="utf-8")


def page_style() -> str:
    """The style of a page of its own, outside a notebook, light or dark."""
    return _STYLE + style()


def pack(value: Any) -> str:
    """Compressed JSON as base64, which cannot end a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode("utf-8", "surrogatepass"), 6, mtime=0)).decode()


@cache
def plotly_js() -> bytes:
    """plotly.js of the installed package, gzipped."""
    return gzip.compress(
        files("plotly").joinpath("package_data", "plotly.min.js").read_bytes(), 6, mtime=0
    )
