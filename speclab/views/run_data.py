"""A run for the page: a header and its steps as a trace writes them; and the page as one HTML file."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from inspect import getdoc
from pathlib import Path
from typing import Any

from speclab.drafters import strategies
from speclab.drafters.base import Strategy, measure_of, small_matters
from speclab.trace.codecs import adapter
from speclab.trace.records import Step, Trace
from speclab.views.modules import joined
from speclab.views.sentences import summary, title
from speclab.views.text_html import text_pieces
from speclab.views.tree_picture import tree_rows

Data = dict[str, Any]
SCRIPTS = Path(__file__).with_name("page")
"""The page's ES modules."""
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""What the exported page may load: nothing but what is in the file."""
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
    return {
        "prompt_ids": list(trace.prompt_ids),
        "first_token": trace.first_token,
        "texts": dict(trace.texts),
        "prompt_parts": trace.prompt_parts(),
        "settings": dict(trace.settings),
        "models": dict(trace.models),
        "finished": trace.finished,
        "max_new_tokens": trace.settings.get("max_new_tokens"),
        "version": trace.version,
        "title": title(trace),
    }


def step_data(step: Step) -> Data:
    """A step as a trace writes it, which is what the page draws."""
    data: Data = adapter(Step).dump_python(step, mode="json")
    return data


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
    return {
        "name": kind.__name__,
        "group": kind.group,
        "doc": (getdoc(kind) or "").partition("\n\n")[0].replace("\n", " "),
        "schema": schema,
        "presets": [
            {"name": preset, "settings": strategy.model_dump(mode="json")}
            for preset, strategy in kind.presets().items()
        ],
    }


def style() -> str:
    """The page's style sheet."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def page_style() -> str:
    """The style of a page of its own, outside a notebook, light or dark."""
    return _STYLE + style()


def page(
    trace: Trace, name: str, cursor: int | None = None, diff: Mapping[str, Any] | None = None
) -> str:
    """A run as one HTML file: the lab's page without a kernel.

    It contains plotly.js and needs no network.
    """
    shown = min(1, len(trace.steps)) if cursor is None else cursor
    run = {
        "header": run_header(trace),
        "cursor": shown,
        "steps": [step_data(step) for step in trace.steps],
        "diff": diff,
    }
    known = strategies()
    used = sorted({str(step.settings.get("strategy")) for step in trace.steps} & known.keys())
    kinds = [strategy_data(known[name]) for name in used]
    data = json.dumps(
        {"run": pack(run), "strategies": kinds, "plotly": b64encode(plotly_js()).decode()}
    )
    items = "".join([f"<li>{escape(summary(step))}</li>" for step in trace.steps])
    without = f"<noscript><p>Without scripts this page lists what each iteration did.</p><ol>{items}</ol></noscript>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{page_style()}</style></head><body>'
        f'<main id="page"></main>{without}<script type="application/json" id="data">{data}</script>'
        f"<script>{joined(SCRIPTS / 'exported.js')}</script></body></html>"
    )


def describe(trace: Trace | None, cursor: int) -> str:
    """One sentence on the current iteration, for output without pictures."""
    if trace is None or not 0 < cursor <= len(trace.steps):
        return "No iteration is shown yet: Step decodes the first."
    return summary(trace.steps[cursor - 1])


def snapshot(trace: Trace | None, cursor: int) -> str:
    """The current iteration as static HTML: its sentence, the text so far and its tree as a table."""
    sentence = f"<p>{escape(describe(trace, cursor))}</p>"
    if trace is None or not 0 < cursor <= len(trace.steps):
        return sentence
    pieces = [piece for pieces in text_pieces(trace, cursor) for piece in pieces]
    text = "".join([piece.text for piece in pieces if piece.kind != "rejected"])
    return f"{sentence}<pre>{escape(text)}</pre>{tree_rows(trace.steps[cursor - 1])}"


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
