"""A run as plain JSON for the page (a header, and what the page shows for each iteration), and as one HTML file."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from speclab.trace.codecs import adapter
from speclab.trace.records import Step, Trace
from speclab.views import (
    cache_picture,
    mask_picture,
    node_picture,
    run_picture,
    sentences,
    text_html,
    tree_picture,
)
from speclab.views.decisions import block_table, decided_table, drafts_sentence, draw_drafts
from speclab.views.networks import step_graph
from speclab.views.phases import PHASES, Position, fresh, positions
from speclab.views.theme import LOOKS, template
from speclab.views.tokens import labels, plot_lines

Data = dict[str, Any]
PURE = (
    "text.js", "figure.js", "phases.js", "words.js", "tree.js", "mask.js", "caches.js", "node.js", "metrics.js",
)  # fmt: skip
"""The page's files from a record to figures, in order: no DOM, no state."""
PAGE = ("state.js", "draw.js", "controls.js", "settings.js", "compare.js", "page.js")
"""The files that show the figures, in order."""
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
    const page = mount(root, { kind: "none", send() {}, on() {}, keys: document }, window.Plotly);
    page.handle({ type: "run", keep: 0, ...run });
  } catch (error) {
    root.append(`The pictures cannot be shown (${error.message}): open the page in a browser of 2024 or later.`);
  }
})();
"""


def header(trace: Trace) -> Data:
    """The part that all iterations share: the title, the prompt, the looks, and empty pictures."""
    looks = {
        look.code: {"label": look.label, "color": look.color, "symbol": look.symbol, "sign": look.sign,
                    "filled": look.filled, "kind": kind}
        for kind, look in LOOKS.items()
    }  # fmt: skip
    return {
        **run_header(trace),
        "prompt": text_html.prompt_piece(trace),
        "legend": text_html.legend(),
        "sentence": f"Before the first iteration: {sentences.prompt_words(trace)}, and the prefill's first token.",
        "max_tokens": trace.settings.get("max_new_tokens"),
        "phases": list(PHASES),
        "looks": looks,
        "links": tree_picture.LINKS,
        "template": template(),
        "mask": {"words": mask_picture.WORDS},
        "timeline": run_picture.timeline_template(),
        "metrics": run_picture.metrics_template(),
        "numbers": run_picture.NUMBERS,
        "node": node_picture.bars_template(),
        "facts": tree_picture.FACTS,
    }


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
        "title": sentences.title(trace),
    }


def step_data(step: Step) -> Data:
    """A step as a trace writes it, which is what the page draws."""
    data: Data = adapter(Step).dump_python(step, mode="json")
    return data


@cache
def script() -> str:
    """The page's files in one scope, after the templates and looks that they read."""
    data = [f"const {name.upper()} = {read(name + '.json')};" for name in ("words", "looks")]
    return "\n".join([*data, *(read(f"page/{name}") for name in (*PURE, *PAGE))])


def style() -> str:
    """The page's style sheet."""
    return read("page.css")


def iteration(step: Step, trace: Trace) -> Data:
    """Everything that the page shows for an iteration; reads only the steps of `trace` up to this one."""
    made = tree_picture.tree_table(step_graph(step), first=tree_picture.marked(step))
    panels = node_picture.panels_of(step)
    frame, codes = mask_picture.mask_frame(step)
    # the page restores them, and adds them to the cells' tooltips
    names = frame["data"][0].pop("hovertext")
    nodes = [_node(step, node) for node in range(len(step.tree))]
    tokens = {
        token
        for node in nodes
        for token, _ in (*node["p"], *node["q"], *node["plain"], (node["choice"], 1))
    }
    return {
        "index": step.index,
        "tokens": len(trace.token_ids(step.index + 1)),
        "sentence": sentences.summary(step),
        "ending": sentences.ending(step),
        "last": step.accepted[-1] if step.accepted else 0,
        "positions": [_position(step, made, position) for position in positions(step)],
        "tree": made,
        "notes": {
            phase: tree_picture.notes(step, Position(phase)) for phase in ("draft", "verify", "all")
        },
        "facts": tree_picture.node_facts(step),
        "mask": {
            "figure": frame,
            "codes": ["".join(map(str, row)) for row in codes.tolist()],
            "names": names,
            "verdict": mask_picture.verdict(step),
        },
        "cache": cache_picture.draw_cache(step, prompt_length=len(trace.prompt_ids))
        if step.caches
        else None,
        "cache_lines": cache_picture.cache_lines(step),
        "cache_key": cache_picture.key(step),
        "nodes": nodes,
        "block": block_table(step),
        "words": labels(tokens, step.texts),
        "residual": _residual(step),
        "findings": [(one.node, sentences.mark(one), one.sentence) for one in step.findings],
        "bars": node_picture.bars_template(panels) if panels != ("p", "q") else None,
        "text": text_html.text_piece(step),
        "timeline": run_picture.timeline_point(step),
        "metrics": run_picture.metrics_point(step),
        "decided": decided_table(step),
        "drafts": {"figure": draw_drafts(step), "sentence": drafts_sentence(step)}
        if step.proposals
        else None,
    }


def _position(step: Step, made: Data, position: Position) -> Data:
    kinds = tree_picture.step_kinds(step, position)
    return {
        "phase": position.phase,
        "level": position.level,
        "kinds": tree_picture.codes(made, kinds),
        "absent": [node for node in range(len(step.tree)) if kinds[node] is None],
        "fresh": sorted(fresh(step, position)),
        "sentence": sentences.position_sentence(step, position),
    }


def _node(step: Step, node: int) -> Data:
    before, after = sentences.tip(step, node)
    children, target, draft = node_picture.node_tops(step, node)
    return {
        "sentence": [
            sentences.node_sentence(step, node, Position("draft")),
            sentences.node_sentence(step, node),
        ],
        "tip": [plot_lines(*before), plot_lines(*after)],
        "children": list(children.items()),
        "choice": step.nodes[node].target_choice,
        "p": [(token, round(probability, 4)) for token, probability in target.items()],
        "q": [(token, round(probability, 4)) for token, probability in draft.items()],
        "plain": [(token, round(probability, 4)) for token, probability in step.plain[node]]
        if step.plain
        else [],
        "beside": sentences.plain_sentence(step, node),
    }


def _residual(step: Step) -> Data | None:
    if step.residual is None:
        return None
    return {
        "node": step.residual.node or 0,
        "sentence": node_picture.residual_sentence(step),
        "figure": node_picture.draw_residual(step),
        "table": node_picture.draws_table(step),
    }


def page(trace: Trace, name: str, cursor: int | None = None) -> str:
    """A run as one HTML file: the lab's page without a kernel.

    It contains plotly.js and needs no network.
    """
    shown = min(1, len(trace.steps)) if cursor is None else cursor
    run = {
        "header": run_header(trace),
        "cursor": shown,
        "steps": [step_data(step) for step in trace.steps],
    }
    data = json.dumps({"run": pack(run), "plotly": b64encode(plotly_js()).decode()})
    items = "".join([f"<li>{escape(sentences.summary(step))}</li>" for step in trace.steps])
    without = f"<noscript><p>Without scripts this page lists what each iteration did.</p><ol>{items}</ol></noscript>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}{read("page.css")}</style></head><body>'
        f'<main id="page"></main>{without}<script type="application/json" id="data">{data}</script>'
        f"<script>{script()}{_START}</script></body></html>"
    )


def describe(trace: Trace | None, cursor: int) -> str:
    """One sentence on the current iteration, for output without pictures."""
    if trace is None or not 0 < cursor <= len(trace.steps):
        return "No iteration is shown yet: Step decodes the first."
    return sentences.summary(trace.steps[cursor - 1])


def snapshot(trace: Trace | None, cursor: int) -> str:
    """The current iteration as static HTML: its sentence, the text so far and its tree as a table."""
    sentence = f"<p>{escape(describe(trace, cursor))}</p>"
    if trace is None or not 0 < cursor <= len(trace.steps):
        return sentence
    text = "".join(
        [trace.texts.get(token, "") for token in (*trace.prompt_ids, *trace.token_ids(cursor))]
    )
    return f"{sentence}<pre>{escape(text)}</pre>{tree_picture.tree_rows(trace.steps[cursor - 1])}"


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


@cache
def read(name: str) -> str:
    """Read a file of this folder."""
    return Path(__file__).parent.joinpath(name).read_text(encoding="utf-8")
