"""What leaves the lab: a frame as static HTML, a run as one HTML page, a view as a file of its own.

The page holds every iteration and every phase of it, drawn beforehand, and plotly.js once; it needs no kernel and no
network. Every iteration is one compressed block, which the browser unpacks when it is shown: the parts of its views,
each once, and which of them each tick of its phases shows.
"""

from __future__ import annotations

import gzip
import json
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

from speclab.errors import SettingsError, SpeclabError, TraceError
from speclab.files import write_whole
from speclab.trace.records import Step, Trace
from speclab.views import explain, token_text
from speclab.views.explain import linked, plural, position_summary, prompt_words, run_words, summary, warning
from speclab.views.figures import NO_PLOTLY, Drawing, Part, figure
from speclab.views.markup import escape, label, tag, written
from speclab.views.palette import THEMES, ThemeName
from speclab.views.playback import PHASES, WHOLE, positions
from speclab.views.registry import ASKED, VIEWS, Frame, Room, View, find
from speclab.views.side_by_side import Beside

ROOM = Room(tree=840, mask=420, height=400)
"""The stage of a page on a screen of 1,366 pixels and more; it scrolls sideways on others."""
_ENDINGS = (".html", ".png", ".svg")
NO_KALEIDO = (
    "A .png or .svg needs the package kaleido and Chrome or Chromium: pip install kaleido, name the browser in "
    "BROWSER_PATH if it is not on the PATH, or save as .html and use the picture's own buttons."
)


def describe(frame: Frame) -> str:
    """The frame in words."""
    step = frame.step
    if step is None:
        return f"Before the first iteration: {prompt_words(frame.trace)} alone."
    if frame.asked:
        return f"Iteration {step.index + 1}: {plural(step.counts.drafted, 'node')} drafted. {ASKED}"
    return summary(step) if frame.position == WHOLE else f"{summary(step)} {position_summary(step, frame.position)}"


def parts_of(drawing: Drawing) -> list[Part]:
    """A drawing as the list of its parts; empty where it has nothing to show."""
    return [part for part in ([drawing] if isinstance(drawing, str | dict) else drawing) if part]


def snapshot(frame: Frame, pictures: Mapping[str, bytes] | None = None) -> str:
    """The frame as static HTML, which needs no kernel: what happened in words, the text, and all pictures as tables.

    `pictures`: PNGs to show, by what they show in words.
    """
    changed = run_words(frame.trace, frame.cursor)
    shown = [tag("p", tag("b", escape(describe(frame)))), tag("div", warning(changed)) if changed else ""]
    for words, data in (pictures or {}).items():
        source = "data:image/png;base64," + b64encode(data).decode()
        shown.append(tag("img", alt=words, src=source, style="max-width:100%;display:block"))
    texts = [view for view in VIEWS.values() if view.place == "text"]
    for view in [*texts, *(_shown("iteration") if frame.cursor else ())]:
        drawn = [part for part in parts_of(view.render(frame)) if isinstance(part, str)]
        words, table = view.describe(frame), view.tabulate(frame)
        shown += [tag("div", part) for part in drawn]
        if table and view.place != "text":
            shown.append(tag("details", tag("summary", escape(f"{view.heading}. {words}".strip())), table))
    return tag("div", *shown, class_="speclab-snapshot")


def save_view(
    trace: Trace,
    cursor: int,
    view: str,
    path: str | os.PathLike[str],
    selected: int | None = None,
    theme: ThemeName = "light",
) -> Path:
    """Writes a view of `speclab.views.registry.VIEWS` by the ending of the path; returns that.

    `.html`: a page of its own; `.png`, `.svg`: its first figure.

    Raises:
        SettingsError: another ending, no such view, theme or iteration, or a view without a figure as a picture.
        TraceError: it cannot be written, or nothing here can draw a picture.
    """
    place, made = Path(path), find(view)
    ending = place.suffix.lower()
    if ending not in _ENDINGS:
        found = place.suffix or "a file without an ending"
        raise SettingsError(f"A view is saved as {', '.join(_ENDINGS)}, not as {found!r}.")
    if theme not in THEMES:
        raise SettingsError(f"There is no theme {theme!r}: choose one of {', '.join(THEMES)}.")
    first = 0 if made.place == "text" else 1
    if not first <= cursor <= len(trace.steps):
        raise SettingsError(f"No iteration {cursor} has a picture of its {view}: {first} to {len(trace.steps)} have.")
    frame = Frame(trace, cursor, selected=selected)
    parts = parts_of(made.render(frame))
    if ending == ".html":
        return write_whole(place, _document(view, tag("main", id="view"), {"parts": _pack(parts)}).encode())
    figures = [part for part in parts if isinstance(part, dict)]
    if not figures:
        raise SettingsError(f"The view {view!r} is HTML: save it as .html.")
    return write_whole(place, picture(figures[0], ending[1:], theme))


def picture(drawn: dict[str, Any], format_: str = "png", theme: ThemeName = "light") -> bytes:
    """A figure as the bytes of a .png, at twice its size, or .svg.

    Raises:
        TraceError: kaleido or a browser for it is missing.
    """
    made = figure(drawn, theme)
    try:
        import kaleido

        size = {"width": made.layout.width or 900, "height": made.layout.height, "scale": 1 + (format_ == "png")}
        opts = {"format": format_, **size}
        return bytes(kaleido.calc_fig_sync(made.to_dict(), opts=opts, kopts={"mathjax": False}))  # else it asks a CDN
    except (ImportError, RuntimeError, OSError):  # kaleido's own errors are RuntimeErrors
        raise TraceError(NO_KALEIDO) from None


def export_html(
    trace: Trace,
    path: str | os.PathLike[str],
    cursor: int | None = None,
    other: Beside | None = None,
    note: str = "",
) -> Path:
    """Writes a run as one page whose iterations and phases can be stepped; returns the path.

    Args:
        trace: the run.
        path: of the file.
        cursor: iterations shown when the page opens; by default the first.
        other: a run to show beside this one, at the same iteration.
        note: a sentence to stand above, such as what another setting would have changed.

    Raises:
        TraceError: the folder is missing, read-only or full.
        SpeclabError: plotly is missing.
    """
    place = Path(path)
    opened = min(1, len(trace.steps)) if cursor is None else cursor
    return write_whole(place, page(trace, opened, place.stem, other, note).encode())


def page(trace: Trace, cursor: int = 0, name: str = "speclab", other: Beside | None = None, note: str = "") -> str:
    """The whole page, opened at `cursor`."""
    frames = [Frame(trace, i, beside=other, room=ROOM) for i in range(len(trace.steps) + 1)]
    once = {view.name: parts_of(view.render(frames[-1])) for view in _shown("run")}
    data = {"at": cursor, "once": _pack(once), "frames": [_pack(_iteration(frame)) for frame in frames]}
    return _document(name, "".join(_body(frames[cursor], name, note)), data)


def _shown(*pages: str) -> list[View]:
    return [view for view in VIEWS.values() if view.page in pages and view.place not in {"file", "text"}]


def _iteration(frame: Frame) -> dict[str, Any]:
    """One block: its views at each tick of its phases, what is said then, and of each node what a click tells."""
    views, step = _shown("iteration"), frame.step
    at = [frame] if step is None else [replace(frame, position=position) for position in positions(step)]
    ticks = [{"phase": step and one.position.phase, "said": linked(describe(one)), "committed": one.committed}
             for one in at]  # fmt: skip
    block = {"ticks": ticks, "views": {view.name: _drawn(view, at) for view in views}}
    if step is None:
        return block
    tables = "".join([view.tabulate(frame) for view in views if view.name != "tree"])  # its nodes are in the facts
    return {**block, "facts": _facts(step), "tables": tables}


def _drawn(view: View, at: Sequence[Frame]) -> tuple[list[Part], list[list[int]]]:
    """The parts of a view, each once, and which of them stand there at each tick; once where it knows no ticks.

    Versions of one part stand side by side, where compression finds them alike.
    """
    parts: list[Part] = []
    drawn = [parts_of(view.render(frame)) for frame in (at if "position" in view.needs else at[-1:])]
    for version in zip_longest(*drawn):
        parts += [part for i, part in enumerate(version) if part and part not in (*parts, *version[:i])]
    return parts, [[parts.index(part) for part in version] for version in drawn]


def _facts(step: Step) -> list[list[Any]]:
    """Of each node: why it fared as it did, the figures of `FACTS`, and the first tokens of both distributions."""

    def top(pairs: Sequence[tuple[int, float]]) -> list[list[Any]]:
        return [[label(token, step.texts), round(prob, 4)] for token, prob in pairs[:4]]

    def three(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.3g}")

    tree, depths = step.tree, step.tree.depth.tolist()
    parents = [None if parent < 0 else parent for parent in step.tree.parent.tolist()]
    return [
        [linked(explain.why(step, i)),
         [label(node.token, step.texts), node.token, parents[i], depths[i], tree.source[i], three(node.draft_prob),
          three(node.path_prob), three(node.target_prob), label(node.target_choice, step.texts), node.verdict,
          three(node.entropy), node.kv_slot],
         top(node.draft_top), top(node.target_top)]
        for i, node in enumerate(step.nodes)
    ]  # fmt: skip


FACTS = ("token", "id", "parent", "depth", "source", "draft p", "path p", "target p", "target's choice", "verdict",
         "entropy (nats)", "KV slot")  # fmt: skip


def _body(frame: Frame, name: str, note: str) -> Iterator[str]:
    trace, count = frame.trace, len(frame.trace.steps)
    facts = [str(trace.models[key]) for key in ("target", "draft", "head") if trace.models.get(key)]
    facts += [str(trace.settings.get(key)) for key in ("strategy",) if trace.settings.get(key)]
    facts.append(f"temperature {written('', trace.settings.get('temperature', 0))}")
    slider = tag("input", id="at", type="range", min=0, max=count, value=frame.cursor, aria_label="iteration")
    phases = [tag("button", name, data_phase=name) for name in PHASES]
    yield tag(
        "header", tag("div", tag("b", escape(name)), " · ", escape(" · ".join(facts)), class_="what"),
        *(tag("button", sign, data_by=by, title=title) for sign, by, title in
          (("|◀", -count, "first (Home)"), ("◀", -1, "one iteration back (←)"), ("▶", 1, "one iteration on (→)"),
           ("▶|", count, "last (End)"))),
        slider, tag("span", id="place"),
        tag("span", tag("button", "‹", data_tick=-1, title="one phase back ([)"), *phases,
            tag("button", "›", data_tick=1, title="one phase on (])"), class_="phases", role="group",
            aria_label="phases"),
    )  # fmt: skip
    yield tag("p", escape(note), class_="note") if note else ""
    said = tag("p", "The pictures are being unpacked.", id="said", role="status", aria_live="polite")
    node = tag("aside", id="node", aria_live="polite", aria_label="the selected node")
    yield tag("main", *map(_slot, _placed("above")), tag("div", *map(_slot, _placed("stage")), class_="stage"),
              *map(_slot, _placed("below")), said, tag("div", _text(trace), node, class_="beside"),
              *(_fold(view.heading, _slot(view)) for view in _placed("tab")),
              _fold("Tables", tag("div", id="tables")))  # fmt: skip
    shown = [tag("li", escape(explain.summary(step))) for step in trace.steps]
    hidden = tag("style", "header>:not(.what),[data-view],#said,#node,details{display:none!important}")
    yield tag("noscript", hidden, tag("p", "Without scripts this page shows its text and what each iteration did."),
              tag("ol", *shown))  # fmt: skip
    every = ", ".join([f"{key} {value}" for key, value in {**trace.settings, **trace.models}.items()])
    yield tag("footer", escape(every))


def _placed(place: str) -> list[View]:
    return [view for view in _shown("iteration", "run") if view.place == place]


def _slot(view: View) -> str:
    return tag("div", data_view=view.name, class_=f"speclab-{view.name}")


def _fold(title: str, body: str) -> str:
    return tag("details", tag("summary", escape(title)), body)


def _text(trace: Trace) -> str:
    pieces = [tag("span", piece, data_after=i) for i, piece in enumerate(token_text.text_pieces(trace))]
    body = tag("div", *pieces, class_="speclab-text-body", dir="auto", role="document", aria_label="the text so far")
    return tag("div", token_text.legend(trace), body, class_="speclab-text")


def _document(name: str, body: str, data: dict[str, Any]) -> str:
    held = json.dumps({**data, "facts": FACTS, "plotly": _plotly()})
    script = _read("plots.js") + _read("page.js")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_style()}</style></head><body>{body}'
        f'<script type="application/json" id="data">{held}</script><script>{script}</script></body></html>'
    )


def _style() -> str:
    """The roles of colours as CSS variables: ours, and those of JupyterLab that HTML of the views asks for."""
    jupyter = {"ink": "ui-font-color1", "muted": "ui-font-color2", "line": "border-color1", "faint": "border-color2",
               "paper": "layout-color1"}  # fmt: skip
    roles = [(name, getattr(THEMES["light"], role), getattr(THEMES["dark"], role))
             for role, other in jupyter.items() for name in (f"--sl-{role}", f"--jp-{other}")]  # fmt: skip
    light = "".join([f"{name}:{color};" for name, color, _ in roles])
    dark = "".join([f"{name}:{color};" for name, _, color in roles])
    media = f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f":root{{color-scheme:light dark;{light}}}{media}{token_text.STYLE}{_read('page.css')}"


def _pack(value: Any) -> str:
    """Compressed, as the text of a script may hold it: no letter in it can end the script."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _packed(text.encode("utf-8", "surrogatepass"))


def _packed(data: bytes) -> str:
    return b64encode(gzip.compress(data, 9, mtime=0)).decode()


@cache
def _plotly() -> str:
    """plotly.js of the installed package, packed."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise SpeclabError(NO_PLOTLY)
    script = Path(found.origin).parent / "package_data" / "plotly.min.js"
    return _packed(script.read_bytes())


@cache
def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
