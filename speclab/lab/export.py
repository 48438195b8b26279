"""A run as one HTML page: every iteration drawn beforehand, a slider and arrow keys to move; no kernel, no network."""

from __future__ import annotations

import os
from pathlib import Path

from speclab.errors import TraceError
from speclab.lab.state import Frame
from speclab.lab.static import plain, snapshot
from speclab.trace import Trace
from speclab.views.markup import tag
from speclab.views.tokens import escape

_STYLE = """
:root{color-scheme:light dark;--jp-ui-font-color1:light-dark(#1f2328,#e8eaed);
--jp-ui-font-color2:light-dark(#5b646e,#a4acb5);
--jp-border-color1:light-dark(#c3c9d0,#5a626b);--jp-border-color2:light-dark(#e4e7eb,#3a4048);
--jp-layout-color1:light-dark(#fff,#16181c);--jp-layout-color2:light-dark(#f6f7f9,#1f2328)}
body{margin:0;font:14px/1.5 system-ui,sans-serif;color:var(--jp-ui-font-color1);background:var(--jp-layout-color1)}
header{position:sticky;top:0;display:flex;gap:12px;align-items:center;padding:10px 24px;
background:var(--jp-layout-color2);border-bottom:1px solid var(--jp-border-color2)}
header input{flex:1}main{padding:8px 24px 48px}main>section{display:none}main>section.now{display:block}
section>div>div{margin:16px 0;overflow-x:auto}
section>div>p{display:none}footer{padding:0 24px 24px;color:var(--jp-ui-font-color2)}
"""
_SCRIPT = """
const at=document.getElementById('at'),said=document.getElementById('said');
const all=[...document.querySelectorAll('main>section')];
function show(){all.forEach((s,i)=>s.classList.toggle('now',i==at.value));said.textContent=all[at.value].dataset.said}
function move(by){at.value=+at.value+by;show()}
at.addEventListener('input',show);
document.addEventListener('keydown',e=>{if(e.target===at)return;if(e.key==='ArrowRight')move(1);if(e.key==='ArrowLeft')move(-1)});
show();
"""


def page(trace: Trace, cursor: int = 0, name: str = "speclab") -> str:
    """The whole page, opened at `cursor`."""
    frames = [Frame(trace, i) for i in range(len(trace.steps) + 1)]
    sections = [tag("section", snapshot(frame), data_said=plain(frame)) for frame in frames]
    header = tag(
        "header", tag("b", escape(name)),
        tag("input", id="at", type="range", min=0, max=len(trace.steps), value=cursor, aria_label="iteration"),
        tag("span", id="said", role="status", aria_live="polite"),
    )  # fmt: skip
    facts = ", ".join(f"{key} {value}" for key, value in {**trace.settings, **trace.models}.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        f"<style>{_STYLE}</style></head><body>{header}<main>{''.join(sections)}</main><footer>{escape(facts)}</footer>"
        f"<script>{_SCRIPT}</script></body></html>"
    )


def write(trace: Trace, cursor: int, path: str | os.PathLike[str]) -> Path:
    """Writes the page.

    Raises:
        TraceError: the folder is missing, read-only or full.
    """
    place = Path(path)
    try:
        place.write_text(page(trace, cursor, place.stem), encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{path} cannot be written ({error.strerror or error}): choose another folder.") from None
    return place
