"""The text so far, token by token: where each came from, what was rejected on the way, where iterations begin.

Generated tokens come in chunks of 64; one more step rewrites the last chunk only, so a long run stays cheap to show.
Each kind has a tint and a line of its own, so that colour is not alone.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from speclab.trace.records import Step, Trace
from speclab.views import markup, playback
from speclab.views.explain import percent, plural
from speclab.views.palette import LOOKS, MONO, SANS, SOURCE_COLORS

SHADES = 5
"""Steps of probability."""
_INK, _MUTED = "var(--jp-ui-font-color1,inherit)", "var(--jp-ui-font-color2,#767676)"
_RULE = "var(--jp-border-color1,#999)"
_RED = LOOKS["rejected"].color
_BLUE = LOOKS["accepted"].color


def _rgba(color: str, opacity: float) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:.2f})"


def _tint(color: str, line: str, opacity: float = 0.2, wide: int = 2) -> str:
    return f"{{background:{_rgba(color, opacity)};border-bottom:{wide}px {line} {color}}}"


def _frame() -> list[str]:
    return [
        f".speclab-text{{font:13px/1.9 {MONO};color:{_INK};max-width:100ch}}",
        ".speclab-text-body{white-space:pre-wrap;overflow-wrap:anywhere}",
        f".sl-legend{{display:flex;flex-wrap:wrap;gap:2px 18px;font:11px/1.9 {SANS};margin-bottom:8px;color:{_MUTED}}}",
        f".sl-p{{color:{_MUTED}}}",
        f".sl-gap{{font-style:italic;border:1px dashed {_RULE};border-radius:8px;padding:0 4px;margin:0 4px}}",
        ".sl-t{border-radius:3px;padding:1px 0;border-bottom:2px solid transparent;margin-right:1px}",
        f".sl-first,.sl-q{{border-bottom:2px dotted {_MUTED}}}",
        f".sl-mark{{font:10px/1 {SANS};color:{_MUTED};border-left:1px solid {_RULE};margin:0 3px 0 5px}}",
        ".sl-mark{padding-left:3px;vertical-align:2px;user-select:none}",
        ".sl-mark b{font-weight:600;margin-left:2px}",
        f".sl-x{{font-size:11px;margin-left:4px;cursor:pointer;color:{_MUTED};border-bottom:2px dotted {_RED}}}",
        ".sl-fold{display:none}.sl-x:focus .sl-fold,.sl-open .sl-fold{display:inline}",
        f".sl-x s{{text-decoration:line-through 1.5px {_rgba(_RED, 0.7)};margin:0 3px}}",
    ]


def _kinds() -> list[str]:
    lines = {"accepted": ("solid", 2), "bonus": ("double", 4), "corrected": ("dashed", 2)}
    return [f".sl-{kind}" + _tint(LOOKS[kind].color, line, wide=wide) for kind, (line, wide) in lines.items()]


def _sources() -> list[str]:
    lines = ("solid", "dashed", "dotted")
    return [f".sl-s{i}" + _tint(color, lines[i % 3], 0.22) for i, color in enumerate(SOURCE_COLORS)]


def _others() -> list[str]:
    shades = [
        f".sl-q{i}{{background:{_rgba(_BLUE, 0.06 + 0.12 * i)};border-bottom:2px solid {_rgba(_BLUE, 0.15 + 0.2 * i)}}}"
        for i in range(SHADES)
    ]
    return [".sl-i0{background:rgba(128,128,128,.14)}", ".sl-i1" + _tint(_BLUE, "solid"), *shades]


STYLE = "".join([*_frame(), *_kinds(), *_sources(), *_others()])
"""To be set once on a page that shows `text_chunks`."""


By = Literal["verdict", "source", "iteration", "probability"]
CHUNK = 64
HEAD = TAIL = 48
"""Prompt tokens shown before and after the fold."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One generated token.

    `kind`: "first" (of the prefill), "accepted", "bonus" or "corrected"; `prob`: the target's, where it was recorded;
    `starts`: the step whose first token this is; `rejected`: tokens of the candidates it was chosen over.
    """

    token: int
    kind: str
    source: str
    iteration: int
    prob: float | None
    starts: Step | None
    rejected: tuple[int, ...]


def shown_tokens(trace: Trace, cursor: int | None = None) -> tuple[Shown, ...]:
    """The generated tokens in order, up to `cursor` iterations."""
    return (_first(trace), *(item for step in trace.steps[:cursor] for item in _of(step)))


def _first(trace: Trace) -> Shown:
    return Shown(trace.first_token, "first", "target", 0, None, None, ())


def _of(step: Step) -> Iterator[Shown]:
    """The tokens of one iteration."""
    judged = {decision.winner: decision for decision in playback.decisions(step)}
    for place, (token, node, kind) in enumerate(playback.token_kinds(step)):
        decision = judged.get(node)
        losers = tuple([n for n in decision.candidates if n != node]) if decision else ()
        source = "target" if node is None else step.tree.source[node]
        prob = _own_prob(step) if node is None else step.nodes[node].target_prob
        start = None if place else step
        yield Shown(token, kind, source, step.index + 1, prob, start, _ids(step, losers))


def _ids(step: Step, nodes: Sequence[int]) -> tuple[int, ...]:
    return tuple([int(step.tree.token[node]) for node in nodes])


def _own_prob(step: Step) -> float | None:
    at = playback.last_on_path(step)
    return None if at < 0 else dict(step.nodes[at].target_top).get(step.bonus if step.bonus is not None else -1)


def text_html(trace: Trace, cursor: int | None = None, by: By = "verdict", *, unfolded: bool = False) -> str:
    """The prompt and `cursor` iterations of text as HTML, with legend and style; `unfolded` shows what was rejected."""
    chunks = text_chunks(trace, cursor, by)
    words = summary(trace, cursor)
    body = markup.tag("div", *chunks, class_="speclab-text-body", dir="auto", role="document", aria_label=words)
    name = "speclab-text sl-open" if unfolded else "speclab-text"
    return f"<style>{STYLE}</style>" + markup.tag("div", legend(trace, by), body, class_=name)


def text_chunks(trace: Trace, cursor: int | None = None, by: By = "verdict") -> list[str]:
    """The prompt, then 64 generated tokens a chunk; each chunk is HTML of its own, to be set under `STYLE`."""
    return Writer().chunks(trace, cursor, by)


def text_pieces(trace: Trace, by: By = "verdict") -> list[str]:
    """The prompt with the first token, then what each iteration added: piece `i` belongs to the text after `i`."""
    first, *rest = Writer().pieces(trace, None, by)
    return [_prompt(trace) + first[0], *map("".join, rest)]


class Writer:
    """Writes text as HTML, each iteration once however often it is shown: a step holds all that its tokens need."""

    def __init__(self) -> None:
        self._way: tuple[By, tuple[str, ...]] | None = None
        self._prompt: tuple[tuple[int, ...], str] = (), ""
        self._written: dict[int, tuple[Step, list[str]]] = {}  # by the step's id, which is its own while it is held

    def chunks(self, trace: Trace, cursor: int | None = None, by: By = "verdict") -> list[str]:
        """As `text_chunks`."""
        if self._prompt[0] != trace.prompt_ids or not trace.prompt_ids:
            self._prompt = trace.prompt_ids, _prompt(trace)
        tokens = list(chain.from_iterable(self.pieces(trace, cursor, by)))
        chunks = ["".join(tokens[i : i + CHUNK]) for i in range(0, len(tokens), CHUNK)]
        return [markup.tag("span", part, class_="speclab-chunk") for part in (self._prompt[1], *chunks)]

    def pieces(self, trace: Trace, cursor: int | None, by: By) -> list[list[str]]:
        """The first token, then the tokens of each iteration."""
        sources = sources_of(trace) if by == "source" else ()
        if self._way != (by, sources) or len(self._written) > 2 * len(trace.steps) + CHUNK:
            self._way, self._written = (by, sources), {}
        first = [_token(_first(trace), trace.texts, by, sources)]
        return [first, *(self._of(trace, step) for step in trace.steps[:cursor])]

    def _of(self, trace: Trace, step: Step) -> list[str]:
        if id(step) not in self._written:
            assert self._way is not None
            texts = ChainMap(dict(step.texts), dict(trace.texts))
            self._written[id(step)] = step, [_token(item, texts, *self._way) for item in _of(step)]
        return self._written[id(step)][1]


def sources_of(trace: Trace) -> tuple[str, ...]:
    """Every source in the trace, the target first, in order of appearance."""
    names = [name for step in trace.steps for name in step.tree.source]
    return tuple(dict.fromkeys(["target", *names]))


def _prompt(trace: Trace) -> str:
    parts = [
        markup.tag("span", markup.escape(item), class_="sl-gap")
        if isinstance(item, str)
        else _readable(item, trace.texts)
        for item in prompt_tokens(trace)
    ]
    return markup.tag("span", *parts, class_="sl-p")


def prompt_tokens(trace: Trace) -> list[int | str]:
    """The prompt's ids; of a long one the first and the last, and between them what is left out, in words."""
    ids = trace.prompt_ids
    if len(ids) <= HEAD + TAIL + 16:
        return list(ids)
    return [*ids[:HEAD], f" … {len(ids) - HEAD - TAIL} tokens … ", *ids[-TAIL:]]


def _readable(token: int, texts: Mapping[int, str]) -> str:
    """Text as one reads it: spaces stay spaces, a line break is shown and made, what is hidden gets its code point."""
    raw = texts.get(token, "")
    if not raw.strip(" ") or token not in texts:
        return markup.escape(markup.label(token, texts))
    body = raw.lstrip(" ")
    visible = body if body.isalnum() else " ".join([markup.display(word) if word else "" for word in body.split(" ")])
    return " " * (len(raw) - len(body)) + markup.escape(visible).replace("⏎", "⏎\n")


def _token(item: Shown, texts: Mapping[int, str], by: By, sources: Sequence[str]) -> str:
    mark = _mark(item)
    rejected = _rejected(item, texts) if by == "verdict" and item.kind == "corrected" else ""
    body = _readable(item.token, texts)
    gap = " " if body.startswith(" ") else ""  # outside the tint, so that a line breaks cleanly
    tip = f"{markup.quoted(item.token, texts)} · id {item.token} · {item.kind} · from {item.source}"
    tip += f" · iteration {item.iteration}" if item.iteration else " · from the prefill"
    tip += f" · target {percent(item.prob)}" if item.prob is not None else ""
    tip += f" · chosen over {_names(item, texts)}" if item.rejected else ""
    return (
        mark
        + rejected
        + gap
        + markup.tag("span", body.removeprefix(" "), class_=f"sl-t {_class(item, by, sources)}", title=tip)
    )


def _class(item: Shown, by: By, sources: Sequence[str]) -> str:
    if by == "source":
        return f"sl-s{sources.index(item.source) % len(SOURCE_COLORS)}"
    if by == "iteration":
        return f"sl-i{item.iteration % 2}" if item.iteration else "sl-first"
    if by == "probability":
        return "sl-q" if item.prob is None else f"sl-q{min(int(item.prob * SHADES), SHADES - 1)}"
    return f"sl-{item.kind}"


def _mark(item: Shown) -> str:
    if item.starts is None:
        return ""
    gained = len(item.starts.committed)
    tip = f"iteration {item.iteration}: {plural(gained, 'token')} gained"
    return markup.tag("span", str(item.iteration), markup.tag("b", f"+{gained}"), class_="sl-mark", title=tip)


def _names(item: Shown, texts: Mapping[int, str]) -> str:
    return ", ".join([markup.quoted(token, texts) for token in item.rejected])


def _rejected(item: Shown, texts: Mapping[int, str]) -> str:
    """The candidates that the target's own token replaced: folded to their number, struck when unfolded."""
    if not item.rejected:
        return ""
    struck = [markup.tag("s", markup.escape(markup.label(token, texts, 16))) for token in item.rejected]
    tip = f"{plural(len(struck), 'candidate')} rejected here: {_names(item, texts)}"
    fold = markup.tag("span", *struck, class_="sl-fold")
    return markup.tag("span", f"×{len(struck)}", fold, class_="sl-x", tabindex=0, title=tip)


def legend(trace: Trace, by: By = "verdict") -> str:
    """What the colours mean, as HTML."""
    if by == "source":
        entries = [(f"sl-s{i % len(SOURCE_COLORS)}", name) for i, name in enumerate(sources_of(trace))]
    elif by == "iteration":
        entries = [("sl-first", "first token"), ("sl-i1", "odd iterations"), ("sl-i0", "even iterations")]
    elif by == "probability":
        entries = [(f"sl-q{i}", f"target ≥ {100 * i // SHADES}%") for i in range(SHADES)] + [("sl-q", "not recorded")]
    else:
        entries = [(f"sl-{kind}", LOOKS[kind].label) for kind in ("accepted", "bonus", "corrected")]
        entries = [("sl-first", "first token (prefill)"), *entries]
    keys = [
        markup.tag("span", markup.tag("span", markup.escape(name), class_=f"sl-t {kind}")) for kind, name in entries
    ]
    if by == "verdict":
        keys.append(markup.tag("span", markup.tag("span", "×2", class_="sl-x"), " rejected, click to unfold"))
    keys.append(
        markup.tag("span", markup.tag("span", "3", markup.tag("b", "+5"), class_="sl-mark"), "iteration, tokens gained")
    )
    return markup.tag("div", *keys, class_="sl-legend")


def summary(trace: Trace, cursor: int | None = None) -> str:
    """One sentence, such as: Text: 30 prompt tokens, then 41 generated in 12 iterations: 1 first, 28 accepted, …."""
    shown = shown_tokens(trace, cursor)
    kinds = [item.kind for item in shown]
    counts = ", ".join([f"{kinds.count(kind)} {kind}" for kind in ("first", "accepted", "bonus", "corrected")])
    iterations = plural(len(trace.steps[:cursor]), "iteration")
    return (
        f"Text: {plural(len(trace.prompt_ids), 'prompt token')}, then {len(shown)} generated in {iterations}: {counts}."
    )


def table(trace: Trace, cursor: int | None = None) -> str:
    """Every generated token, as an HTML table."""
    rows = (
        (place, markup.label(item.token, trace.texts), item.token, item.kind, item.source, item.iteration,
         "" if item.prob is None else f"{item.prob:.3f}", " ".join(markup.label(t, trace.texts) for t in item.rejected))
        for place, item in enumerate(shown_tokens(trace, cursor))
    )  # fmt: skip
    head = ("place", "token", "id", "kind", "source", "iteration", "target p", "rejected here")
    return markup.table("Generated tokens", head, rows)
