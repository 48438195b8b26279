"""Export a run as one HTML file: the lab's page without a kernel. It includes plotly.js and needs no network."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from speclab.trace.records import Trace
from speclab.views.run_data import header, iteration
from speclab.views.sentences import summary
from speclab.views.tree_picture import tree_rows

_STYLE = """
:root { color-scheme: light dark }
body { margin: 0; padding: 8px 20px 24px; background: #fff }
@media (prefers-color-scheme: dark) {
  :root { --jp-ui-font-color1: #e8eaed; --jp-ui-font-color2: #a4acb5; --jp-border-color1: #5a626b;
    --jp-border-color2: #3a4048; --jp-layout-color1: #111111; --jp-error-color1: #ff7b72 }
  body { background: #111 }
}
"""
_START = """
const unpack = async packed => {
  const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent), root = document.getElementById("page");
  try {
    const script = document.createElement("script");
    script.textContent = await unpack(data.plotly);
    document.head.append(script);
    const run = JSON.parse(await unpack(data.run));
    const page = mount(root, { live: false, send() {}, on() {}, keys: document }, window.Plotly);
    page.handle({ type: "run", keep: 0, ...run });
  } catch (error) {
    root.append(`The pictures cannot be shown (${error.message}): open the page in a browser of 2024 or later.`);
  }
})();
"""


def page(trace: Trace, name: str, cursor: int | None = None) -> str:
    """The page as HTML."""
    shown = min(1, len(trace.steps)) if cursor is None else cursor
    run = {"header": header(trace), "cursor": shown, "iterations": [iteration(step, trace) for step in trace.steps]}
    data = json.dumps({"run": pack(run), "plotly": b64encode(plotly_js()).decode()})
    sentences = "".join([f"<li>{escape(summary(step))}</li>" for step in trace.steps])
    without = (
        f"<noscript><p>Without scripts this page lists what each iteration did.</p><ol>{sentences}</ol></noscript>"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}{read("page.css")}</style></head><body>'
        f'<main id="page"></main>{without}<script type="application/json" id="data">{data}</script>'
        f"<script>{read('page.js')}{_START}</script></body></html>"
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
    text = "".join([trace.texts.get(token, "") for token in (*trace.prompt_ids, *trace.token_ids(cursor))])
    return f"{sentence}<pre>{escape(text)}</pre>{tree_rows(trace.steps[cursor - 1])}"


def pack(value: Any) -> str:
    """Compressed JSON as base64, which cannot end a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode("utf-8", "surrogatepass"), 6, mtime=0)).decode()


@cache
def plotly_js() -> bytes:
    """plotly.js of the installed package, gzipped."""
    return gzip.compress(files("plotly").joinpath("package_data", "plotly.min.js").read_bytes(), 6, mtime=0)


@cache
def read(name: str) -> str:
    """Read page.js or page.css."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
