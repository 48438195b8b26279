"""The runs of a lab: the tree of forks, and runs compared on one prompt by texts, figures, seconds and depths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from speclab.analysis.compare import ComparedRun, Comparison
from speclab.files import byte_count
from speclab.trace.records import PHASES, depth_counts
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import HIDDEN_AXIS, MUTED, Part, Spec, axis, escape, lines, note, spec, upright
from speclab.views.markup import clip, label, labelled, quoted, tag
from speclab.views.palette import LOOKS, MONO, PHASE_COLORS, SANS

FIGURES = {
    "tokens per iteration": ("tokens_per_iteration", ".2f"), "target calls": ("target_calls", ""),
    "draft calls": ("draft_calls", ""), "acceptance rate": ("acceptance_rate", ".0%"),
}  # fmt: skip
ROW, WORDS, DEEPEST, TAIL = 26, 88, 8, 12
"""Pixels of a row, longest name of a run, depths in the table, and tokens shown of a text after it differs."""


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


def forks_spec(forks: Sequence[Fork]) -> Spec:
    """The tree of forks over the iterations; a click tells the run. The one shown has a heavy line and its word."""
    import networkx

    by_number = {fork.number: fork for fork in forks}
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from([-1, *by_number])  # -1: above all, for a run may have lost its parent
    graph.add_edges_from((fork.parent if fork.parent in by_number else -1, fork.number) for fork in forks)
    ordered = [by_number[number] for number in networkx.dfs_preorder_nodes(graph, -1) if number >= 0]
    row = {fork.number: i for i, fork in enumerate(ordered)}
    most = max([fork.iterations for fork in forks] + [1])
    blue, least = LOOKS["accepted"].color, most / 50  # so much of a run without iterations is seen
    ends = [max(fork.iterations, fork.at + least) for fork in ordered]
    data: list[Spec] = []
    for color, wide, shown in ((MUTED, 1.5, False), (blue, 3, True)):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for fork, end in zip(ordered, ends, strict=True):
            if fork.present is shown:
                trunk = _trunk(fork, by_number) or fork
                xs += [fork.at, fork.at, end, None]
                ys += [row[trunk.number], row[fork.number], row[fork.number], None]
        data.append({"x": xs, "y": ys, "mode": "lines", "line": {"color": color, "width": wide}, "hoverinfo": "skip"})
    point = {"y": list(row.values()), "customdata": list(row), "hoverinfo": "text", "meta": {"click": "run"},
             "hovertext": [lines(fork.label, _words(fork)) for fork in ordered]}  # fmt: skip
    colors = [blue if fork.present else MUTED for fork in ordered]
    names = [escape(clip(_words(fork), WORDS)) for fork in ordered]
    data.append({**point, "x": ends, "mode": "markers", "marker": {"size": 10, "color": colors}})
    data.append({**point, "x": [1.05 * most] * len(row), "mode": "text", "text": names, "textposition": "middle right"})
    ticks = {"tickvals": [0, most], "ticktext": ["0", f"{most} iterations"], "showgrid": False, "side": "top"}
    return spec(
        data, label=summary(forks), height=ROW * len(row) + 40, margin={"l": 8, "r": 8, "t": 30, "b": 8},
        xaxis={**ticks, "range": [-0.02 * most, 3.4 * most]}, meta={"name": "runs"},
        yaxis={**HIDDEN_AXIS, "range": [len(row) - 0.4, -0.6]},
    )  # fmt: skip


def summary(forks: Sequence[Fork]) -> str:
    """One sentence: how many runs there are, which is shown, and what their caches take."""
    if not forks:
        return "No run has begun: Step decodes the first iteration."
    shown = next((fork.label for fork in forks if fork.present), "none")
    caches = byte_count(sum(fork.cache_bytes for fork in forks))
    return f"{plural(len(forks), 'run')}, their KV caches {caches}; shown: {shown}."


def forks_table(forks: Sequence[Fork]) -> str:
    """One row per run, as an HTML table."""
    rows = (
        (fork.number, fork.name, "–" if fork.parent is None else fork.parent, fork.at, fork.iterations, fork.tokens,
         f"{fork.tokens_per_iteration:.2f}", byte_count(fork.cache_bytes), "shown" if fork.present else "")
        for fork in forks
    )  # fmt: skip
    head = ("run", "what", "forked from", "at iteration", "iterations", "tokens", "tokens per iteration", "KV caches",
            "")  # fmt: skip
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


def _seconds(run: ComparedRun, phase: str) -> float:
    return sum(step.seconds.get(phase, 0.0) for step in run.trace.steps) if run.trace else 0.0


def _depths(run: ComparedRun) -> list[tuple[int, int]]:
    return depth_counts(run.trace.steps) if run.trace else []


def _shared(found: Comparison) -> tuple[int, ...]:
    differing = [index for run in found.runs if (index := found.differs_at(run)) is not None]
    return found.reference[: min(differing, default=None)]


def compare_spec(found: Comparison) -> Spec:
    """Bars on one row per run: tokens per iteration, tokens per second, milliseconds per token by phase."""
    runs = found.runs[::-1]
    rates, speeds = ([getattr(run.trace.metrics, name) if run.trace else 0.0 for run in runs]
                     for name in ("tokens_per_iteration", "throughput"))  # fmt: skip
    shares = {phase: [1000 * _seconds(run, phase) / max(len(run.token_ids) - 1, 1) for run in runs] for phase in PHASES}
    bar = {"type": "bar", "orientation": "h", "y": list(range(len(runs))), "cliponaxis": False, "hoverinfo": "text",
           "textposition": "outside"}  # fmt: skip

    def bars(axis: str, values: list[float], color: str, form: str, unit: str) -> Spec:
        said = [f"{run.name}: {value:{form}} {unit}" for run, value in zip(runs, values, strict=True)]
        return {**bar, "xaxis": axis, "x": [round(value, 3) for value in values], "marker": {"color": color},
                "hovertext": [lines(each) for each in said]}  # fmt: skip

    data = [
        bars("x", rates, LOOKS["accepted"].color, ".2f", "tokens per iteration")
        | {"text": [f"{rate:.2f}" if run.trace else "did not run" for run, rate in zip(runs, rates, strict=True)]},
        bars("x2", speeds, LOOKS["bonus"].color, ",.0f", "tokens/s") | {"text": [f"{each:,.0f}" for each in speeds]},
        *(bars("x3", shares[phase], PHASE_COLORS[phase], ".2f", f"ms per token, {phase}") for phase in PHASES),
    ]
    key = " ".join([f'<span style="color:{PHASE_COLORS[phase]}">■</span> {phase}' for phase in PHASES])
    panels = (
        ("", 0.0, 0.22, 1.3 * max(rates), "tokens per iteration, plain: 1"),
        ("2", 0.26, 0.43, 1.3 * max(speeds), "tokens per second"),
        ("3", 0.47, 1.0, max(map(sum, zip(*shares.values(), strict=True))), f"ms/token: {key}"),
    )
    axes: Spec = {f"xaxis{number}": axis(domain=[left, right], range=[0, top or 1], nticks=5)
                  for number, left, right, top, _ in panels}  # fmt: skip
    names = {"tickvals": bar["y"], "ticktext": [escape(clip(run.name, 24)) for run in runs], "showgrid": False}
    said = "; ".join([f"{run.name} {rate:.2f}" for run, rate in zip(runs, rates, strict=True)])
    return spec(
        data, label=f"Tokens per iteration: {said}.", height=30 * len(runs) + 70, yaxis=names, barmode="stack",
        bargap=0.35, shapes=[upright(1)], margin={"l": 170, "r": 12, "t": 30, "b": 30}, meta={"name": "comparison"},
        **axes, annotations=[note(title, left, 1) for _, left, _, _, title in panels],
    )  # fmt: skip


def compared_drawing(found: Comparison, kind: Literal["strategy", "run"] = "strategy") -> list[Part]:
    """Everything about strategies on one prompt, or a run and its forks; nothing where there is nothing to compare."""
    if len(found.runs) < (2 if kind == "run" else 1):
        return []
    done, known = sum(run.complete for run in found.runs), texts(found)
    first = next((run.trace for run in found.runs if run.trace is not None), None)
    prompt = first.prompt_ids if first else ()
    # Of a conversation what was said last: the template ends all of them alike.
    said_last = first.messages[-1:] if first else ()
    ids = next((prompt[one.start : one.stop] for one in said_last if one.stop), prompt)
    end = ("… " if len(ids) > TAIL else "") + "".join([label(id_, known) for id_ in ids[-TAIL:]])
    said = {
        "Stopped": f"{done} of {len(found.runs)} that began came to the end of the text." if found.stopped else "",
        "Prompt": f"{end} ({plural(len(prompt), 'token')})." if kind == "strategy" else "",
        "Texts": text_words(found),
    }
    words = [labelled(name, sentence) for name, sentence in said.items() if sentence]
    notes = {"strategy": "Each ran once, one after another", "run": "A fork has its first iterations from its parent"}
    table, *more = figures_tables(found, kind)
    below = tag("details", tag("summary", "seconds and depths"), *more, style="margin:8px 0;overflow-x:auto")
    measured = labelled("Measured", f"{notes[kind]}: seconds are of this machine at that time.")
    heading = tag("div", *words, class_="speclab-compared-view")
    return [heading, compare_spec(found), table + below + _text(found) + measured]


def text_words(found: Comparison) -> str:
    """Whether the texts are the same, and whether they must be."""
    apart = [(run, at) for run in found.runs if (at := found.differs_at(run)) is not None]
    ran, known = sum(bool(run.token_ids) for run in found.runs), texts(found)
    if not found.greedy:
        drawn = f"{len(apart)} of {ran} differ" if apart else "here all are the same"
        return f"Drawn at a temperature above 0: every text is a draw of its own, and {drawn}."
    length = plural(len(_shared(found)), "token")
    if apart:
        first = "; ".join([
            f"{run.name} differs from token {at + 1}: "
            + " against ".join(quoted(ids[at], known) if at < len(ids) else "the end"
                               for ids in (run.token_ids, found.reference))
            for run, at in apart
        ])  # fmt: skip
        return f"Greedy texts must be the same, but {first}. In half precision that may be a tie of two tokens."
    if ran <= 1:
        return f"Nothing to compare with: {ran or 'no'} text, {length}."
    if all(run.complete or not run.token_ids for run in found.runs):
        return f"Greedy: all {ran} texts are the same, {length}, as they must be."
    longest = plural(max(len(run.token_ids) for run in found.runs), "token")
    return f"Greedy: all {ran} texts are the same as far as each came, as they must be; the longest has {longest}."


def texts(found: Comparison) -> Mapping[int, str]:
    """Every token's text."""
    return {id_: text for run in found.runs if run.trace for id_, text in run.trace.texts.items()}


def figures_tables(found: Comparison, kind: str) -> list[str]:
    """Three tables with one row per run: figures and texts, seconds by phase, acceptance by depth."""
    figures, seconds, depths = list[tuple[str, ...]](), list[tuple[str, ...]](), list[tuple[str, ...]]()
    deepest = min(max(len(_depths(run)) for run in found.runs), DEEPEST)
    for run in found.runs:
        at, metrics = found.differs_at(run), run.trace.metrics if run.trace else None
        text = "did not run" if run.trace is None else "same" if at is None else f"differs from token {at + 1}"
        outcome = f"{text}{': ' if run.trace is None else '; '}{run.problem}" if run.problem else text
        shown = [format(getattr(metrics, name), form) if metrics else "–" for name, form in FIGURES.values()]
        shares = [f"{accepted / drafted:.0%}" if drafted else "–" for drafted, accepted in _depths(run)[:deepest]]
        figures.append((run.name, *shown, str(len(run.token_ids)), outcome))
        seconds.append((run.name, *[f"{_seconds(run, phase):.4f}" if metrics else "–" for phase in PHASES]))
        depths.append((run.name, *shares, *["–"] * (deepest - len(shares))))
    caption = {"run": "Runs", "strategy": "Strategies"}[kind] + " on this prompt"
    levels = [f"depth {depth}" for depth in range(1, deepest + 1)]
    return [
        markup.table(caption, (kind, *FIGURES, "tokens", "text"), figures),
        markup.table("Seconds by phase", (kind, *[f"{phase} s" for phase in PHASES]), seconds),
        markup.table("Acceptance by depth: accepted / drafted", (kind, *levels), depths),
    ]


def _text(found: Comparison) -> str:
    """The text they share, and after it the beginning of each that differs."""
    known = texts(found)

    def read(ids: tuple[int, ...]) -> str:
        return markup.escape("".join(known.get(id_, f" #{id_}") for id_ in ids)).replace("\n", "⏎\n")

    style = f"font:13px/1.6 {MONO};white-space:pre-wrap;overflow-wrap:anywhere;max-width:110ch"
    parts = [tag("div", read(_shared(found)), style=style)]
    for run, ids in [(run, run.token_ids) for run in found.runs]:
        if (at := found.differs_at(run)) is not None:
            name = tag("b", markup.escape(f"{run.name}, from token {at + 1}: "), style=f"font-family:{SANS}")
            cut = "…" if at + TAIL < len(ids) else ""
            mark = tag("span", read(ids[at : at + TAIL]) + cut, style="text-decoration:underline wavy")
            parts.append(tag("div", name, mark, style=style))
    heading = tag("div", tag("b", "The text they all share"), style=f"font:12px {SANS}")
    return heading + "".join(parts)
