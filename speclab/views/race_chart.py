"""The race: plain decoding and this strategy write the same text on one clock, which ticks once per plain pass."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import ceil

from speclab.trace.records import Trace
from speclab.views.explain import plural, step_words
from speclab.views.figures import INK, LINE, MUTED, Part, Spec, lines, spec
from speclab.views.markup import display, escape, labelled, tag
from speclab.views.metrics_chart import MODEL, duration, modelled_plain
from speclab.views.palette import LOOKS, MONO, SANS

TAIL = 220
"""Characters of each text that are shown, its end."""
MARKED = 150
"""Passes that get a mark each."""
OURS = LOOKS["accepted"].color


@dataclass(frozen=True, slots=True)
class Track:
    """One way to write the text: at the start and after each pass, the time and the tokens written by then."""

    name: str
    seconds: tuple[float, ...]
    tokens: tuple[int, ...]

    @classmethod
    def of(cls, name: str, seconds: Iterable[float], tokens: Iterable[int]) -> Track:
        """From what each pass takes and writes; the first token is the prefill's, before the clock starts."""
        return cls(name, tuple(accumulate(seconds, initial=0.0)), tuple(accumulate(tokens, initial=1)))

    def passes(self, now: float) -> int:
        """Passes that are over."""
        return bisect_right(self.seconds, now * (1 + 1e-9)) - 1

    def written(self, now: float) -> int:
        """Tokens by then."""
        return self.tokens[self.passes(now)]


@dataclass(frozen=True, slots=True)
class Race:
    """Both tracks, and what a beat lasts: seconds, or a pass where none were recorded."""

    ours: Track
    plain: Track
    beat: float
    timed: bool

    @property
    def beats(self) -> int:
        """Until both are done."""
        return max(self.plain.tokens[-1] - 1, ceil(self.ours.seconds[-1] / self.beat - 1e-6))


def beats(trace: Trace) -> int:
    """How many beats the race lasts, one for each pass of plain decoding; 0 where nothing was decoded."""
    return race_of(trace).beats if trace.steps else 0


def race(trace: Trace, beat: int) -> list[Part]:
    """Both tracks after `beat` beats: tokens over seconds, and what each has written by then."""
    if not trace.steps:
        return [tag("div", "The race needs a run: decode some iterations first.", class_="sl-empty")]
    run = race_of(trace)
    return _parts(trace, run, min(max(beat, 0), run.beats) * run.beat)


def race_at(trace: Trace, cursor: int) -> list[Part]:
    """Both tracks at the end of an iteration, for a cursor that plays through the run."""
    run = race_of(trace)
    return _parts(trace, run, run.ours.seconds[cursor])


def _parts(trace: Trace, run: Race, now: float) -> list[Part]:
    return [labelled("Race", race_sentence(run, now)), race_spec(run, now), _texts(trace, run, now)]


def race_of(trace: Trace) -> Race:
    """The times of all passes of a run that has some."""
    steps, beat = trace.steps, modelled_plain(trace.steps)
    tokens = [len(step.committed) for step in steps]
    seconds = [1.0 if beat is None else sum(step.seconds.values()) for step in steps]
    ours = Track.of(str(trace.settings.get("strategy") or "this strategy"), seconds, tokens)
    plain = Track.of("plain decoding", [beat or 1.0] * sum(tokens), [1] * sum(tokens))
    return Race(ours, plain, beat or 1.0, beat is not None)


def race_spec(run: Race, now: float) -> Spec:
    """Tokens over time, a tick for each pass that is over; the axes are those of the whole race."""
    end, top, ahead = run.beats * run.beat, run.plain.tokens[-1], run.ours.written(now) >= run.plain.written(now)
    unit, name = (1.0, "target passes") if not run.timed else (1000.0, "ms") if end < 1 else (1.0, "s")
    at = round(now * unit, 3)
    data: list[Spec] = []
    for track, color, dash, symbol in ((run.plain, MUTED, "dot", "line-ns"), (run.ours, OURS, "solid", "circle")):
        done = track.passes(now) + 1
        x, y = [round(seconds * unit, 3) for seconds in track.seconds[:done]], [*track.tokens[:done]]
        line = {"color": color, "width": 2, "dash": dash}
        data.append({
            "type": "scatter", "mode": "lines+markers" if done <= MARKED else "lines", "x": x, "y": y,
            "line": {"shape": "hv", **line},
            "marker": {"symbol": symbol, "size": 7, "color": color, "line": {"width": 1.5, "color": color}},
            "hovertemplate": f"{lines(track.name)}: %{{y}} tokens after %{{x}} {name}<extra></extra>",
        })  # fmt: skip
        data.append({
            "type": "scatter", "mode": "lines+text", "x": [x[-1], at], "y": [y[-1], y[-1]], "line": line,
            "hoverinfo": "skip", "cliponaxis": False, "text": ["", f"  {lines(track.name)} <b>{y[-1]}</b>"],
            "textposition": "top right" if ahead == (track is run.ours) else "bottom right",
            "textfont": {"color": INK, "size": 12},
        })  # fmt: skip
    return spec(
        data, label=race_sentence(run, now), height=230, margin={"l": 52, "r": 190, "t": 10, "b": 40},
        meta={"name": "race"}, dragmode=False,
        shapes=[{"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper",
                 "line": {"color": INK, "width": 1}}],
        xaxis={"range": [0, end * unit * 1.01], "fixedrange": True, "ticksuffix": f" {name}" if run.timed else "",
               "title": {"text": "" if run.timed else name}, "nticks": 8, "showgrid": False},
        yaxis={"range": [-0.06 * top, top * 1.12], "fixedrange": True, "title": {"text": "tokens written"},
               "nticks": 6, "zeroline": True, "zerolinecolor": LINE, "showline": False},
    )  # fmt: skip


def race_sentence(run: Race, now: float) -> str:
    """Where both are."""
    when = duration(now) if run.timed else f"{round(now)} target pass{'' if round(now) == 1 else 'es'}"
    mine, theirs = run.ours.written(now), run.plain.written(now)
    ahead = f", {mine / theirs:.1f} times as many" if mine > theirs else ""
    return (
        f"After {when} {run.ours.name} has written {plural(mine, 'token')} in {run.ours.passes(now)} target passes"
        f"{ahead}; plain decoding {plural(theirs, 'token')} in {run.plain.passes(now)}."
    )


def _texts(trace: Trace, run: Race, now: float) -> str:
    """What each has written by then, the tokens of its last pass marked; two blocks of a fixed height."""
    pieces = [
        _visible(trace.texts.get(trace.first_token, f"#{trace.first_token}")),
        *[_visible(step.texts.get(token, f"#{token}")) for step in trace.steps for token in step.committed],
    ]
    shown = []
    for track, color in ((run.ours, OURS), (run.plain, "#999999")):
        done = track.passes(now)
        before = track.tokens[done - 1] if done else 0
        old, new = "".join(pieces[:before]), "".join(pieces[before : track.tokens[done]])
        cut = f"…{old[-TAIL:]}" if len(old) > TAIL else old
        last = tag("span", escape(new), style=f"border-bottom:2px solid {color};font-weight:600")
        edge = f"font:600 12px {SANS};border-left:4px solid {color};padding-left:6px"
        text = tag("div", escape(cut), last, style=f"font:13px/1.6 {MONO};white-space:pre-wrap;overflow-wrap:anywhere")
        block = "flex:1 1 320px;min-width:0;height:8.5em;overflow:hidden"
        shown.append(tag("div", tag("b", escape(track.name), style=edge), text, style=block))
    both = tag("div", *shown, style="display:flex;flex-wrap:wrap;gap:4px 28px")
    return tag("div", both, tag("p", escape(_note(trace, run)), class_="sl-note"), class_="speclab-race")


def _note(trace: Trace, run: Race) -> str:
    """How the seconds were come by, and whether plain decoding would indeed write this text."""
    said = f"This run's seconds are measured; plain decoding's are {MODEL}. Prefill excluded."
    if not run.timed:
        said = "No seconds were recorded: every target pass counts as one beat, drafting as nothing."
    if lossy := [step for step in trace.steps if step.counts.lossy]:
        said += f" Plain decoding would write another text: {step_words(lossy[-1])}."
    elif any(step.rule in {"independent draws", "draws without replacement"} for step in trace.steps):
        said += " Plain decoding would sample another text of the same distribution; the race shows this one for both."
    return said


@lru_cache(maxsize=4096)
def _visible(piece: str) -> str:
    """Text as it is read, on one line; what is invisible, and no space, as a symbol."""
    return "".join([char if char == " " or char.isprintable() else f"{display(char)} " for char in piece])
