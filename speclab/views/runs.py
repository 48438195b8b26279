"""The runs of a lab: the tree of forks, and runs compared on one prompt by texts, figures, seconds and depths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from speclab.analysis.compare import ComparedRun, Comparison
from speclab.files import byte_count
from speclab.trace.records import PHASES
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.markup import Drawn, bar, clip, escape, label, labelled, quoted, tag
from speclab.views.palette import LOOKS, MONO, PHASE_COLORS, SANS, css

ROW, LEFT, WIDE, WORDS = 24.0, 12.0, 260.0, 92


@dataclass(frozen=True, slots=True)
class Fork:
    """One run. `number` 0 is the first; numbers are never given twice.

    `name`: its strategy, or what it changed of its parent. `parent`: number of the run it was forked from, None where
    it was started anew; `at`: iterations it shares with it. `tokens`: generated ids, the prefill's first included.
    `cache_bytes`: allocated for its KV caches. `present`: whether the lab goes on with it.
    """

    number: int
    name: str
    parent: int | None
    at: int
    iterations: int
    tokens: int
    tokens_per_iteration: float
    cache_bytes: int
    present: bool

    @property
    def label(self) -> str:
        """`run 0: DynaTree`, `fork 2 of 0 at iteration 3: node budget 24 → 8`."""
        if self.parent is None:
            return f"run {self.number}: {self.name}"
        return f"fork {self.number} of {self.parent} at iteration {self.at}: {self.name}"


def forks_svg(forks: Sequence[Fork]) -> str:
    """The tree as one SVG string; the run shown is told by the word "shown" and a heavier line."""
    colors, ordered = css(), _ordered(forks)
    row = {fork.number: i for i, fork in enumerate(ordered)}
    by_number = {fork.number: fork for fork in forks}
    unit = WIDE / max([fork.iterations for fork in forks] + [1])
    parts = []
    for fork in ordered:
        y, start, end = _y(row[fork.number]), LEFT + fork.at * unit, LEFT + fork.iterations * unit
        trunk = _trunk(fork, by_number)
        top = y if trunk is None else _y(row[trunk.number])
        ink, wide = (LOOKS["accepted"].color, 3) if fork.present else (colors.muted, 1.5)
        line = f"M{start:.1f} {top:.1f}V{y:.1f}H{max(end, start + 4):.1f}"
        parts.append(markup.tag("path", d=line, style=f"fill:none;stroke:{ink};stroke-width:{wide}"))
        if trunk is not None:  # a dot where it leaves, for it may cross the lines of others below
            dot = f"fill:none;stroke:{ink};stroke-width:6;stroke-linecap:round"
            parts.append(markup.tag("path", d=f"M{start:.1f} {top:.1f}h0.1", style=dot))
        parts.append(markup.tag("circle", cx=max(end, start + 4), cy=y, r=4.0, style=f"fill:{ink}"))
        style = "font-size:12px" + (";font-weight:600" if fork.present else "")
        parts.append(markup.text(clip(_words(fork), WORDS), LEFT + WIDE + 16, y + 4, style=style))
    return markup.svg(LEFT + WIDE + 640, ROW * len(ordered) + 8, summary(forks), colors, parts)


def summary(forks: Sequence[Fork]) -> str:
    """One sentence: how many runs there are, which is shown, and what their caches take."""
    if not forks:
        return "No run has begun: Step decodes the first iteration."
    shown = next((fork.label for fork in forks if fork.present), "none")
    caches = byte_count(sum([fork.cache_bytes for fork in forks]))
    return f"{plural(len(forks), 'run')}, their KV caches {caches}; shown: {shown}."


def forks_table(forks: Sequence[Fork]) -> str:
    """One row per run, as an HTML table."""
    rows = (
        (fork.number, fork.name, "–" if fork.parent is None else fork.parent, fork.at, fork.iterations, fork.tokens,
         f"{fork.tokens_per_iteration:.2f}", byte_count(fork.cache_bytes), "shown" if fork.present else "")
        for fork in forks
    )  # fmt: skip
    head = (
        "run",
        "what",
        "forked from",
        "at iteration",
        "iterations",
        "tokens",
        "tokens per iteration",
        "KV caches",
        "",
    )
    return markup.table("Runs of this lab", head, rows)


def _words(fork: Fork) -> str:
    figures = f"{plural(fork.tokens, 'token')}, {fork.tokens_per_iteration:.2f} tokens per iteration"
    return f"{fork.number}{' · shown' if fork.present else ''} · {figures} · {fork.name}"


def _trunk(fork: Fork, by_number: Mapping[int, Fork]) -> Fork | None:
    """The run whose line it leaves: its parent, or the nearest run above whose own line reaches so far back."""
    above = None if fork.parent is None else by_number.get(fork.parent)
    while above is not None and fork.at < above.at and above.parent is not None and above.parent in by_number:
        above = by_number[above.parent]
    return above


def _y(row: int) -> float:
    return ROW * row + ROW / 2 + 2


def _ordered(forks: Iterable[Fork]) -> list[Fork]:
    """Every run right before its forks."""
    below: dict[int | None, list[Fork]] = {}
    numbers = {fork.number for fork in forks}
    for fork in forks:
        below.setdefault(fork.parent if fork.parent in numbers else None, []).append(fork)
    ordered: list[Fork] = []
    waiting = below.get(None, [])[::-1]
    while waiting:
        fork = waiting.pop()
        ordered.append(fork)
        waiting += below.get(fork.number, [])[::-1]
    return ordered


BAR, DEEPEST, TAIL = 180.0, 8, 12
"""Pixels of the longest bar, depths in the table, and tokens shown of a text after it differs."""


def compared_html(found: Comparison) -> str:
    """Everything about strategies on one prompt; the numbers stand in tables, which can be copied."""
    if not found.runs:
        return ""
    words = [labelled("Prompt", prompt_words(found)), labelled("Texts", text_words(found))]
    if found.stopped:
        done = sum(run.complete for run in found.runs)
        words.insert(0, labelled("Stopped", f"{done} of {len(found.runs)} that began came to the end of the text."))
    return _page(found, "strategy", words, "Each ran once, one after another")


def runs_html(found: Comparison) -> str:
    """The same of a run and its forks; empty where there is one alone."""
    if len(found.runs) < 2:
        return ""
    return _page(
        found, "run", [labelled("Texts", text_words(found))], "A fork has its first iterations from its parent"
    )


def _page(found: Comparison, kind: str, words: list[str], note: str) -> str:
    parts = (figures_table(found, kind), seconds_table(found, kind), depths_table(found, kind), _text(found))
    blocks = [tag("div", part, style="margin-top:10px;overflow-x:auto") for part in parts if part]
    measured = labelled("Measured", f"{note}: seconds are of this machine at that time.")
    return tag("div", *words, *blocks, measured, class_="speclab-compared-view")


def prompt_words(found: Comparison) -> str:
    """The end of the prompt, and how long it is: a comparison stays on the screen when the prompt above has changed."""
    prompt = next((run.trace.prompt_ids for run in found.runs if run.trace is not None), ())
    known = texts(found)
    end = "".join(label(id_, known) for id_ in prompt[-TAIL:])
    return f"{'… ' if len(prompt) > TAIL else ''}{end} ({plural(len(prompt), 'token')})."


def text_words(found: Comparison) -> str:
    """Whether the texts are the same, and whether they must be."""
    apart = [(run, at) for run in found.runs if (at := found.differs_at(run)) is not None]
    ran = sum(bool(run.token_ids) for run in found.runs)
    if not found.greedy:
        drawn = f"{len(apart)} of {ran} differ" if apart else "here all are the same"
        return f"Drawn at a temperature above 0: every text is a draw of its own, and {drawn}."
    if not apart:
        if ran <= 1:
            return f"Nothing to compare with: {ran or 'no'} text, {plural(len(found.shared), 'token')}."
        length = plural(len(found.shared), "token")
        if all(run.complete or not run.token_ids for run in found.runs):
            return f"Greedy: all {ran} texts are the same, {length}, as they must be."
        longest = plural(max(len(run.token_ids) for run in found.runs), "token")
        return f"Greedy: all {ran} texts are the same as far as each came, as they must be; the longest has {longest}."
    first = "; ".join(_apart(found, run, at) for run, at in apart)
    return f"Greedy texts must be the same, but {first}. In half precision that may be a tie of two tokens."


def _apart(found: Comparison, run: ComparedRun, at: int) -> str:
    mine, theirs = _token(found, run.token_ids, at), _token(found, found.reference, at)
    return f"{run.name} differs from token {at + 1}: {mine} against {theirs}"


def _token(found: Comparison, ids: tuple[int, ...], at: int) -> str:
    return quoted(ids[at], texts(found)) if at < len(ids) else "the end"


def texts(found: Comparison) -> Mapping[int, str]:
    """Every token's text."""
    return {id_: text for run in found.runs if run.trace for id_, text in run.trace.texts.items()}


def figures_table(found: Comparison, kind: str = "strategy") -> str:
    """Tokens per iteration, calls, and what went wrong."""
    best = max((row["tokens_per_iteration"] or 0.0 for row in found.rows()), default=0.0)
    rows: list[tuple[object, ...]] = []
    for run, row in zip(found.runs, found.rows(), strict=True):
        if run.trace is None:
            rows.append((run.name, "–", "", "–", "–", "–", "–", f"did not run: {run.problem}"))
            continue
        rate, accepted = float(row["tokens_per_iteration"]), float(row["acceptance_rate"])
        drawn = bar(rate / float(best) if best else 0.0, LOOKS["accepted"].color, 90)
        rows.append((
            run.name, f"{rate:.2f}", drawn, row["target_calls"], row["draft_calls"], f"{accepted:.0%}",
            row["tokens"], _outcome(found, run),
        ))  # fmt: skip
    head = (kind, "tokens per iteration", "", "target calls", "draft calls", "acceptance rate", "tokens", "text")
    names = {"strategy": "Strategies", "run": "Runs"}
    return markup.table(f"{names[kind]} on this prompt", head, rows)


def _outcome(found: Comparison, run: ComparedRun) -> str:
    at = found.differs_at(run)
    text = "same" if at is None else f"differs from token {at + 1}"
    return f"{text}; {run.problem}" if run.problem else text


def seconds_table(found: Comparison, kind: str = "strategy") -> str:
    """Milliseconds by phase; a bar of all, on one scale."""
    longest = max((sum(map(run.seconds, PHASES)) for run in found.runs), default=0.0)
    rows = [
        (run.name, *(f"{1000 * run.seconds(phase):.1f}" for phase in PHASES),
         f"{1000 * sum(map(run.seconds, PHASES)):.1f}", _stacked(run, longest))
        for run in found.runs if run.trace is not None
    ]  # fmt: skip
    return markup.table("Milliseconds by phase, prefill left out", (kind, *PHASES, "all", ""), rows)


def _stacked(run: ComparedRun, longest: float) -> Drawn:
    """One piece per phase; it says nothing to a screen reader: its numbers stand beside it."""
    style = "display:inline-block;height:10px;width:{:.1f}px;background:{}"
    pieces = [
        tag("span", title=f"{phase} {1000 * run.seconds(phase):.1f} ms",
            style=style.format(BAR * run.seconds(phase) / (longest or 1.0), PHASE_COLORS[phase]))
        for phase in PHASES
    ]  # fmt: skip
    return Drawn(tag("span", *pieces, aria_hidden="true", style="white-space:nowrap"))


def depths_table(found: Comparison, kind: str = "strategy") -> str:
    """How often a path was accepted so deep, of the iterations that drafted so deep."""
    deepest = min(max((len(run.depths) for run in found.runs), default=0), DEEPEST)
    if not deepest:
        return ""
    rows = []
    for run in found.runs:
        shares = [_share(*depth) for depth in run.depths[:deepest]]
        if shares:
            rows.append((run.name, *shares, *([""] * (deepest - len(shares)))))
    head = (kind, *(f"depth {depth + 1}" for depth in range(deepest)))
    more = f", the first {DEEPEST}" if any(len(run.depths) > DEEPEST for run in found.runs) else ""
    return markup.table(f"Acceptance by depth{more}: accepted / drafted at this depth", head, rows)


def _share(drafted: int, accepted: int) -> str:
    return f"{accepted / drafted:.0%}\u00a0of\u00a0{drafted}" if drafted else ""


def _text(found: Comparison) -> str:
    """The text they share, and after it the beginning of each that differs."""
    known = texts(found)

    def read(ids: tuple[int, ...]) -> str:
        return escape("".join(known.get(id_, f" #{id_}") for id_ in ids)).replace("\n", "⏎\n")

    style = f"font:13px/1.6 {MONO};white-space:pre-wrap;overflow-wrap:anywhere;max-width:110ch"
    parts = [tag("div", read(found.shared), style=style)]
    for run in found.runs:
        at = found.differs_at(run)
        if at is not None:
            ids = run.token_ids
            name = tag("b", escape(f"{run.name}, from token {at + 1}: "), style=f"font-family:{SANS}")
            cut = "…" if at + TAIL < len(ids) else ""
            mark = tag("span", read(ids[at : at + TAIL]) + cut, style="text-decoration:underline wavy")
            parts.append(tag("div", name, mark, style=style))
    heading = tag("div", tag("b", "The text they all share"), style=f"font:12px {SANS}")
    return heading + "".join(parts)


COPIED = "Copied: paste it into a spreadsheet or a text."
_SCRIPT = """(async button=>{
const said=button.nextElementSibling,text=button.dataset.copy;
said.textContent='';
try{await navigator.clipboard.writeText(text)}
catch{
const area=document.createElement('textarea');
area.value=text;area.style.position='fixed';document.body.append(area);area.select();
let done=false;
try{done=document.execCommand('copy')}catch{}
area.remove();button.focus();
if(!done){said.textContent=button.dataset.otherwise;return}
}
said.textContent=button.dataset.copied;
})(this)"""


def copy_button(name: str, text: str, otherwise: str, tooltip: str) -> str:
    """The button, and beside it what came of a press, read out by a screen reader.

    Args:
        name: what it says; its class is `speclab-copy`.
        text: what it copies.
        otherwise: said where the browser lets no page copy.
        tooltip: what it is for.
    """
    button = tag(
        "button", name, type="button", class_="jupyter-button widget-button speclab-copy", title=tooltip,
        data_copy=text, data_copied=COPIED, data_otherwise=otherwise, onclick=_SCRIPT,
        data_lm_suppress_shortcuts="true",
    )  # fmt: skip
    return button + tag("span", class_="sl-muted", role="status", aria_live="polite", style="margin-left:8px")
