"""The page that a report is: its frame, style and the few elements that it is made of. One file, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from speclab.views.markup import Drawn, escape, tag

STYLE = """
:root{color-scheme:light dark;--ink:light-dark(#1f2328,#e8eaed);--muted:light-dark(#57606a,#a9b1ba);
--rule:light-dark(#c3c9d0,#5a626b);--faint:light-dark(#e4e7eb,#343a42);--paper:light-dark(#fff,#16181c);
--shade:light-dark(#f6f7f9,#1f2328);--link:light-dark(#0b61a4,#7ab8ec);--warn:light-dark(#8a4b00,#f0b45a);
--best:light-dark(#e3f0fa,#16344a)}
*{box-sizing:border-box}html{scroll-padding-top:64px}
body{margin:0;font:15px/1.55 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;color:var(--ink);
background:var(--paper)}
main,body>header,body>footer{max-width:1120px;margin:0 auto;padding:0 28px}
body>header{padding-top:34px}h1{font-size:27px;line-height:1.25;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:21px;margin:52px 0 6px;padding-top:14px;border-top:2px solid var(--ink)}
h3{font-size:16.5px;margin:34px 0 4px}h4{font-size:15px;margin:28px 0 4px}p{margin:6px 0 10px;max-width:84ch}
a{color:var(--link)}.sub,.under,caption,summary,footer{color:var(--muted)}.sub{margin:0 0 4px}
nav{position:sticky;top:0;z-index:9;background:var(--paper);border-bottom:1px solid var(--faint);margin-top:14px}
nav ul{display:flex;gap:18px;max-width:1120px;margin:0 auto;padding:9px 28px;list-style:none;font-size:14px;
overflow-x:auto;white-space:nowrap;scrollbar-width:thin}
nav a{text-decoration:none}nav a:hover{text-decoration:underline}
.lead{font-size:17px;max-width:78ch}.under{font-size:13.5px}ul.under{padding-left:20px;max-width:92ch;margin:6px 0}
.warn{border-left:4px solid var(--warn);background:var(--shade);padding:8px 14px;margin:12px 0;max-width:96ch}
.warn b{color:var(--warn)}.wide{overflow-x:auto;margin:8px 0 4px}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:4px 0;font-size:13.5px}
th,td{padding:4px 16px 4px 0;text-align:left;vertical-align:baseline}
thead th{border-bottom:1px solid var(--rule);font-weight:600;vertical-align:bottom;line-height:1.3;max-width:11em}
thead tr.group th{border-bottom:0;padding-bottom:0;color:var(--muted);font-weight:500;max-width:none}
tbody tr{border-bottom:1px solid var(--faint)}tbody th{font-weight:400;white-space:nowrap}
tbody tr:last-child{border-bottom:1px solid var(--rule)}td.n,th.n{text-align:right}td.n{white-space:nowrap}
td i{font-style:normal;color:var(--muted);font-size:12px}tr.best{background:var(--best)}tr.best th{font-weight:600}
tr.peer th::after{content:" ◇";color:var(--muted)}td.paper{background:var(--shade)}
th.paper{background:var(--shade)}.edge{border-left:1px solid var(--rule);padding-left:16px}
figure{margin:8px 0 2px}figure .plotly-graph-div{width:100%}details{margin:2px 0 10px}
summary{cursor:pointer;font-size:13.5px}.facts{display:grid;grid-template-columns:max-content 1fr;gap:2px 20px;
font-size:13.5px;margin:8px 0}.facts dt{color:var(--muted)}.facts dd{margin:0;overflow-wrap:anywhere}
code{font:12.5px ui-monospace,Menlo,Consolas,monospace}footer{padding-bottom:36px;margin-top:44px;font-size:13px}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.js-plotly-plot .main-svg text{fill:var(--ink)!important}
.js-plotly-plot .gridlayer path{stroke:var(--faint)!important;stroke-opacity:1!important}
.js-plotly-plot .shapelayer path{stroke:var(--muted)!important}
.js-plotly-plot [class*=traceray] path{stroke:var(--rule)!important;stroke-opacity:1!important}
.js-plotly-plot .hoverlayer .hovertext path{fill:var(--paper)!important;stroke:var(--rule)!important}
.js-plotly-plot .heatmaplayer text{fill:#111!important}
@media print{nav,.modebar-container,noscript{display:none}details{display:block}h2{break-before:page}}
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the page, and what the navigation calls it."""

    anchor: str
    name: str
    html: str

    def headed(self, heading: str = "") -> Part:
        """As a section under a heading; by default its name."""
        html = tag("section", tag("h2", escape(heading or self.name)), self.html, id=self.anchor)
        return Part(self.anchor, self.name, html)

    def within(self) -> str:
        """As a block of a larger part: its headings go one level down."""
        return block(self.name, self.html.replace("<h3>", "<h4>").replace("</h3>", "</h4>"))


_CONFIG = {"displaylogo": False, "responsive": True, "scrollZoom": False,
           "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
           "toImageButtonOptions": {"format": "svg"}}  # fmt: skip
_NO_SCRIPT = "The figures need JavaScript. Nothing is lost without it: each has its numbers in a table below it."


def page(title: str, sub: Sequence[str], parts: Sequence[Part], footer: str) -> str:
    """The whole page: `title` and lines under it, a navigation over the parts, the parts, a last line."""
    body = "".join(part.html for part in parts)
    links = "".join(tag("li", tag("a", escape(part.name), href=f"#{part.anchor}")) for part in parts)
    script = f"<script>{_plotly()}</script>" if "Plotly.newPlot" in body else ""
    above = "".join(tag("p", escape(line), class_="sub") for line in sub)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>{script}</head><body>'
        f"<header><h1>{escape(title)}</h1>{above}<noscript>{warning('Figures', _NO_SCRIPT)}</noscript></header>"
        f'<nav aria-label="parts of the page"><ul>{links}</ul></nav><main>{body}</main>'
        f"<footer>{escape(footer)}</footer></body></html>"
    )


def block(heading: str, *parts: str) -> str:
    """A heading and what stands under it; nothing where there is nothing."""
    found = "".join(parts)
    return tag("h3", escape(heading)) + found if found else ""


def fold(summary: str, *parts: str) -> str:
    """What is there to be looked up; nothing where there is nothing."""
    found = "".join(parts)
    return tag("details", tag("summary", escape(summary)), found) if found else ""


def said(text: str, kind: str = "") -> str:
    """A paragraph."""
    return tag("p", escape(text), class_=kind or None)


def under(lines: Sequence[str]) -> str:
    """Small print below a table or figure: one line plain, several as a list."""
    if len(lines) < 2:
        return "".join(said(line, "under") for line in lines)
    return tag("ul", *(tag("li", escape(line)) for line in lines), class_="under")


def warning(label: str, text: str) -> str:
    """A notice that nobody should miss."""
    return tag("p", tag("b", escape(f"{label}. ")), escape(text), class_="warn", role="note")


def drawing(figure: Any, label: str, table: str, name: str) -> str:
    """A plotly figure; `label` says what it shows, `table` is the same in numbers, folded away."""
    html = figure.to_html(full_html=False, include_plotlyjs=False, config=_CONFIG, div_id=f"figure-{name}")
    return tag("figure", html, role="img", aria_label=label) + fold("the numbers of this figure", table)


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values."""
    return tag("dl", *(tag("dt", escape(name)) + tag("dd", escape(value)) for name, value in pairs), class_="facts")


def value(text: str, spread: str = "", *, paper: bool = False, edge: bool = False) -> Drawn:
    """A number's cell: to the right, its spread small behind it; a paper's own stands on a shade."""
    kinds = " ".join(["n", *(["paper"] if paper else []), *(["edge"] if edge else [])])
    return Drawn(tag("td", escape(text), tag("i", escape(f" {spread}")) if spread else "", class_=kinds))


def table(
    head: Sequence[str], rows: Iterable[str], caption: str = "", groups: Sequence[tuple[str, int]] = (), words: int = 1
) -> str:
    """A table that scrolls by itself; `rows` are from `row`.

    `groups`: headings over so many columns each. `words`: columns from the left that hold no numbers.
    """
    above = [tag("th", escape(name), colspan=span, scope="colgroup") for name, span in groups]
    sides = (None if place < words else "n" for place in range(len(head)))
    heads = [tag("th", escape(name), scope="col", class_=side) for name, side in zip(head, sides, strict=True)]
    return tag("div", tag(
        "table", tag("caption", escape(caption)) if caption else "",
        tag("thead", tag("tr", *above, class_="group") if above else "", tag("tr", *heads)), tag("tbody", *rows),
    ), class_="wide", tabindex=0, role="region", aria_label=caption or "table")  # fmt: skip


def row(name: str, cells: Iterable[str | Drawn], kind: str = "") -> str:
    """A row under its name; a plain string is text, `value` makes a number's cell."""
    made = [cell if isinstance(cell, Drawn) else tag("td", escape(cell)) for cell in cells]
    return tag("tr", tag("th", escape(name), scope="row"), *made, class_=kind or None)


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
