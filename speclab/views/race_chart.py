"""The race: plain decoding and this strategy write the same text on one clock, which ticks once per plain pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import ceil
from typing import Any, Literal

from speclab.trace.records import Trace
from speclab.views.explain import plural
from speclab.views.figures import INK, LINE, MUTED, Part, Spec, lines, spec
from speclab.views.markup import display, escape, labelled, tag
from speclab.views.metrics_chart import Plain, duration, modelled_plain
from speclab.views.palette import LOOKS, MONO, SANS

Clock = Literal["measured", "modelled"]
TAIL = 220
"""Characters of each text that are shown, its end."""
MARKED = 150
"""Passes that get a mark each."""
OURS = LOOKS["accepted"].color


@dataclass(frozen=True, slots=True)
class Track:
    """One way to write the text: after each pass, the time and the tokens written by then."""

    name: str
    seconds: tuple[float, ...]
    tokens: tuple[int, ...]

    def passes(self, now: float) -> int:
        """Passes that are over."""
        return sum([end <= now * (1 + 1e-9) for end in self.seconds])

    def written(self, now: float) -> int:
        """Tokens by then; the first is the prefill's, before the clock starts."""
        done = self.passes(now)
        return self.tokens[done - 1] if done else 1


@dataclass(frozen=True, slots=True)
class Race:
    """Both tracks, what a beat lasts, whether the seconds are seconds, and how they were come by."""

    ours: Track
    plain: Track
    beat: float
    timed: bool
    note: str

    @property
    def beats(self) -> int:
        """Until both are done."""
        return max(len(self.plain.seconds), ceil(self.ours.seconds[-1] / self.beat - 1e-6))


def beats(trace: Trace, *, clock: Clock = "measured", plain: Plain | None = None) -> int:
    """How many beats the race lasts, one for each pass of plain decoding; 0 where nothing was decoded."""
    return race_of(trace, clock, plain).beats if trace.steps else 0


def race(trace: Trace, beat: int, *, clock: Clock = "measured", plain: Plain | None = None) -> list[Part]:
    """Both tracks after `beat` beats: tokens over seconds, and what each has written by then.

    Args:
        clock: "measured": this run's own seconds. "modelled": passes alone, each of the target as long as the shortest
            one that was measured, each of the draft as long as they were on average; no other work.
        plain: plain decoding's time where it was measured; else it is modelled.
    """
    if not trace.steps:
        return [tag("div", "The race needs a run: decode some iterations first.", class_="sl-empty")]
    run = race_of(trace, clock, plain)
    return _parts(trace, run, min(max(beat, 0), run.beats) * run.beat)


def race_at(trace: Trace, cursor: int) -> list[Part]:
    """Both tracks at the end of an iteration, for a cursor that plays through the run."""
    run = race_of(trace)
    return _parts(trace, run, run.ours.seconds[cursor - 1])


def _parts(trace: Trace, run: Race, now: float) -> list[Part]:
    return [labelled("Race", race_sentence(run, now)), race_spec(run, now), _texts(trace, run, now)]


def race_of(trace: Trace, clock: Clock = "measured", plain: Plain | None = None) -> Race:
    """The times of all passes of a run that has some."""
    steps = trace.steps
    plain = plain or modelled_plain(steps)
    written = tuple(accumulate([len(step.committed) for step in steps], initial=1))[1:]
    beat, ends = (plain.seconds_per_token, _ends(trace, clock)) if plain else (1.0, range(1, len(steps) + 1))
    count = written[-1] - 1
    pure = Track("plain decoding", tuple([beat * (place + 1) for place in range(count)]), tuple(range(2, count + 2)))
    name = str(trace.settings.get("strategy") or "this strategy")
    return Race(Track(name, tuple(ends), written), pure, beat, plain is not None, _note(clock, plain))


def _ends(trace: Trace, clock: Clock) -> Sequence[float]:
    steps = trace.steps
    if clock == "measured":
        return [*accumulate([sum(step.seconds.values()) for step in steps])]
    shortest = modelled_plain(steps)
    calls = sum([step.counts.draft_calls for step in steps])
    drafting = sum([step.seconds.get("draft", 0.0) for step in steps]) / calls if calls else 0.0
    target = shortest.seconds_per_token if shortest else 0.0
    return [*accumulate([step.counts.target_calls * target + step.counts.draft_calls * drafting for step in steps])]


def _note(clock: Clock, plain: Plain | None) -> str:
    if plain is None:
        return "No seconds were recorded: every target pass counts as one beat, drafting as nothing."
    mine = (
        "This run's seconds are measured"
        if clock == "measured"
        else "This run's seconds are modelled (each target pass as long as its shortest, each draft pass as they "
        "were on average, no other work)"
    )
    return f"{mine}; plain decoding's are {plain.how}: {plain.note}. Prefill excluded."


def race_spec(run: Race, now: float) -> Spec:
    """Tokens over time, a tick for each pass that is over; the axes are those of the whole race."""
    end = run.beats * run.beat
    unit, name = (1000.0, "ms") if end < 1 else (1.0, "s")
    unit, name = (unit, name) if run.timed else (1.0, "target passes")
    data: list[dict[str, Any]] = []
    ahead = run.ours.written(now) >= run.plain.written(now)
    for track, color, dash, symbol in ((run.plain, MUTED, "dot", "line-ns"), (run.ours, OURS, "solid", "circle")):
        done = track.passes(now)
        x = [0.0, *(round(seconds * unit, 3) for seconds in track.seconds[:done])]
        y = [1, *track.tokens[:done]]
        data.append({
            "type": "scatter", "mode": "lines+markers" if len(x) <= MARKED else "lines", "x": x, "y": y,
            "line": {"shape": "hv", "color": color, "width": 2, "dash": dash},
            "marker": {"symbol": symbol, "size": 7, "color": color, "line": {"width": 1.5, "color": color}},
            "hovertemplate": f"{lines(track.name)}: %{{y}} tokens after %{{x}} {name}<extra></extra>",
        })  # fmt: skip
        data.append({
            "type": "scatter", "mode": "lines+text", "x": [x[-1], round(now * unit, 3)], "y": [y[-1], y[-1]],
            "line": {"color": color, "width": 2, "dash": dash}, "hoverinfo": "skip", "cliponaxis": False,
            "text": ["", f"  {lines(track.name)} <b>{y[-1]}</b>"],
            "textposition": "top right" if ahead == (track is run.ours) else "bottom right",
            "textfont": {"color": INK, "size": 12},
        })  # fmt: skip
    top = run.plain.tokens[-1] if run.plain.tokens else 2
    at = round(now * unit, 3)
    return spec(
        data,
        label=race_sentence(run, now),
        height=230,
        margin={"l": 52, "r": 190, "t": 10, "b": 40},
        meta={"name": "race"},
        dragmode=False,
        shapes=[{"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper",
                 "line": {"color": INK, "width": 1}}],
        xaxis={"range": [0, end * unit * 1.01], "fixedrange": True, "ticksuffix": f" {name}" if run.timed else "",
               "title": {"text": "" if run.timed else name}, "nticks": 8, "showgrid": False},
        yaxis={"range": [-0.06 * top, top * 1.12], "fixedrange": True, "title": {"text": "tokens written"},
               "nticks": 6, "zeroline": True,
               "zerolinecolor": LINE, "showline": False},
    )  # fmt: skip


def race_sentence(run: Race, now: float) -> str:
    """Where both are."""
    when = duration(now) if run.timed else plural(round(now), "target pass").replace("passs", "passes")
    mine, theirs = run.ours.written(now), run.plain.written(now)
    ahead = f", {mine / theirs:.1f} times as many" if mine > theirs else ""
    return (
        f"After {when} {run.ours.name} has written {plural(mine, 'token')} in {run.ours.passes(now)} target passes"
        f"{ahead}; plain decoding {plural(theirs, 'token')} in {run.plain.passes(now)}."
    )


def _texts(trace: Trace, run: Race, now: float) -> str:
    """What each has written by then, the tokens of its last pass marked; two lines of a fixed height."""
    pieces = _pieces(trace)
    shown = []
    for track, color in ((run.ours, OURS), (run.plain, "#999999")):
        count, done = track.written(now), track.passes(now)
        before = (track.tokens[done - 2] if done > 1 else 1) if done else 0
        old, new = "".join(pieces[:before]), "".join(pieces[before:count])
        cut = f"…{old[-TAIL:]}" if len(old) > TAIL else old
        last = tag("span", escape(new), style=f"border-bottom:2px solid {color};font-weight:600")
        name = tag(
            "b", escape(track.name), style=f"font:600 12px {SANS};border-left:4px solid {color};padding-left:6px"
        )
        text = tag("div", escape(cut), last, style=f"font:13px/1.6 {MONO};white-space:pre-wrap;overflow-wrap:anywhere")
        shown.append(tag("div", name, text, style="flex:1 1 320px;min-width:0;height:8.5em;overflow:hidden"))
    both = tag("div", *shown, style="display:flex;flex-wrap:wrap;gap:4px 28px")
    note = tag("p", escape(f"{run.note}{_same(trace)}"), class_="sl-note")
    return tag("div", both, note, class_="speclab-race")


def _same(trace: Trace) -> str:
    """Whether plain decoding would indeed write this text."""
    if any(step.counts.lossy for step in trace.steps):
        return " Plain decoding would write another text: typical acceptance changes the output distribution."
    if any(step.rule in {"independent draws", "draws without replacement"} for step in trace.steps):
        return " Plain decoding would sample another text of the same distribution; the race shows this one for both."
    return ""


def _pieces(trace: Trace) -> list[str]:
    """The text of each generated token, the prefill's first."""
    texts: Mapping[int, str] = trace.texts
    pieces = [texts.get(trace.first_token, f"#{trace.first_token}")]
    pieces += [step.texts.get(token, f"#{token}") for step in trace.steps for token in step.committed]
    return [_visible(piece) for piece in pieces]


@lru_cache(maxsize=4096)
def _visible(piece: str) -> str:
    """Text as it is read, on one line; what is invisible, and no space, as a symbol."""
    return "".join([char if char == " " or char.isprintable() else f"{display(char)} " for char in piece])
