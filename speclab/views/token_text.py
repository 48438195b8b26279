"""The text so far, token by token: where each came from, what was rejected on the way, where iterations begin.

Iterations come in chunks of 16; one more step rewrites the last alone, so a long run stays cheap to show.
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
from speclab.views.explain import percent, plural, prompt_words
from speclab.views.markup import escape, tag
from speclab.views.palette import LOOKS, MONO, SANS, SOURCE_COLORS

By = Literal["verdict", "source", "iteration", "probability"]
"""What colours say."""
CHUNK = 16
"""Iterations."""
HEAD = TAIL = 48
"""Prompt tokens shown before and after the fold."""
SHADES = 5
"""Steps of probability."""
_INK, _MUTED = "var(--jp-ui-font-color1,inherit)", "var(--jp-ui-font-color2,#767676)"
_RULE = "var(--jp-border-color1,#999)"
_RED, _BLUE = LOOKS["rejected"].color, LOOKS["accepted"].color


def _rgba(color: str, opacity: float) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:.2f})"


def _tint(color: str, line: str, wide: int = 2) -> str:
    return f"{{background:{_rgba(color, 0.2)};border-bottom:{wide}px {line} {color}}}"


def _shade(i: int) -> str:
    line = f"2px solid {_rgba(_BLUE, 0.15 + 0.2 * i)}"
    return f".sl-q{i}{{background:{_rgba(_BLUE, 0.06 + 0.12 * i)};border-bottom:{line}}}"


STYLE = "".join([
    f".speclab-text{{font:13px/1.9 {MONO};color:{_INK};max-width:100ch}}",
    ".speclab-text-body{white-space:pre-wrap;overflow-wrap:anywhere}",
    f".sl-legend{{display:flex;flex-wrap:wrap;gap:2px 18px;font:12px/1.9 {SANS};margin-bottom:8px;color:{_INK}}}",
    f".sl-p{{color:{_MUTED}}}.sl-role{{color:{_INK}}}",
    f".sl-tpl{{color:{_MUTED};font-size:12px;border:1px dotted {_MUTED};border-radius:3px;padding:0 2px;margin:0 3px}}",
    ".sl-tpl{-webkit-box-decoration-break:clone;box-decoration-break:clone}",
    f".sl-gap{{font-style:italic;border:1px dashed {_RULE};border-radius:8px;padding:0 4px;margin:0 4px}}",
    ".sl-t{border-radius:3px;padding:1px 0;border-bottom:2px solid transparent;margin-right:1px}",
    f".sl-first,.sl-q{{border-bottom:2px dotted {_MUTED}}}",
    f".sl-mark{{font:11px/1 {SANS};color:{_MUTED};border-left:1px solid {_RULE};margin:0 3px 0 5px}}",
    ".sl-mark{padding-left:3px;vertical-align:2px;user-select:none;cursor:pointer}.sl-mark b{margin-left:2px}",
    f".sl-x{{font-size:12px;margin-left:4px;cursor:pointer;color:{_MUTED};border-bottom:2px dotted {_RED}}}",
    ".sl-fold{display:none}.sl-x:focus .sl-fold,.sl-open .sl-fold{display:inline}",
    f".sl-x s{{text-decoration:line-through 1.5px {_rgba(_RED, 0.7)};margin:0 3px}}",
    *(f".sl-{kind}" + _tint(LOOKS[kind].color, line, wide)
      for kind, line, wide in (("accepted", "solid", 2), ("bonus", "double", 4), ("corrected", "dashed", 2))),
    *(f".sl-s{i}" + _tint(color, ("solid", "dashed", "dotted")[i % 3]) for i, color in enumerate(SOURCE_COLORS)),
    ".sl-i0{background:rgba(128,128,128,.14)}.sl-i1" + _tint(_BLUE, "solid"),
    *map(_shade, range(SHADES)),
])  # fmt: skip
"""To be set once on a page that shows chunks."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One generated token.

    `kind`: "first" (of the prefill), "accepted", "bonus" or "corrected"; `prob`: the target's, where it was recorded;
    `gained`: by the iteration whose first token this is, else 0; `rejected`: candidates that it was chosen over.
    """

    token: int
    kind: str
    source: str
    iteration: int
    prob: float | None
    gained: int
    rejected: tuple[int, ...]


def shown_tokens(trace: Trace, cursor: int | None = None) -> tuple[Shown, ...]:
    """The generated tokens in order, up to `cursor` iterations."""
    return (_first(trace), *(item for step in trace.steps[:cursor] for item in _of(step)))


def _first(trace: Trace) -> Shown:
    return Shown(trace.first_token, "first", "target", 0, None, 0, ())


def _of(step: Step) -> Iterator[Shown]:
    """The tokens of one iteration."""
    judged = {decision.winner: decision for decision in playback.decisions(step)}
    for place, (token, node, kind) in enumerate(playback.token_kinds(step)):
        losers = judged[node].candidates if node in judged else ()
        rejected = tuple([int(step.tree.token[n]) for n in losers if n != node])
        source = "target" if node is None else step.tree.source[node]
        prob = _own_prob(step) if node is None else step.nodes[node].target_prob
        yield Shown(token, kind, source, step.index + 1, prob, 0 if place else len(step.committed), rejected)


def _own_prob(step: Step) -> float | None:
    at = playback.last_on_path(step)
    return None if at < 0 else dict(step.nodes[at].target_top).get(step.bonus if step.bonus is not None else -1)


def text_html(trace: Trace, cursor: int | None = None, by: By = "verdict", *, unfolded: bool = False) -> str:
    """The prompt and `cursor` iterations of text as HTML, with legend and style; `unfolded` shows what was rejected."""
    chunks = (*closed_chunks(trace, cursor, by), tail_chunk(trace, cursor, by))
    words = summary(trace, cursor)
    body = tag("div", *chunks, class_="speclab-text-body", dir="auto", role="document", aria_label=words)
    name = "speclab-text sl-open" if unfolded else "speclab-text"
    return f"<style>{STYLE}</style>" + tag("div", legend(trace, by), body, class_=name)


def closed_chunks(trace: Trace, committed: int | None = None, by: By = "verdict") -> list[str]:
    """The prompt with the first token, then every chunk of 16 iterations that is full; see `closed_key`."""
    first, *rest = map("".join, _pieces(trace, 0, _closed(trace, committed), by))
    chunks = ["".join(rest[start : start + CHUNK]) for start in range(0, len(rest), CHUNK)]
    return [f'<span class="speclab-chunk">{part}</span>' for part in (prompt_html(trace) + first, *chunks)]


def closed_key(trace: Trace, committed: int | None = None, by: By = "verdict") -> tuple[object, ...]:
    """What `closed_chunks` depends on: while this stays the same, compared by `==`, they need not be made again."""
    closed = _closed(trace, committed)
    last = id(trace.steps[closed - 1]) if closed else 0
    start = trace.prompt_ids, trace.messages, trace.first_token
    return start, closed, last, by, sources_of(trace) if by == "source" else ()


def tail_chunk(trace: Trace, committed: int | None = None, by: By = "verdict") -> str:
    """The iterations after the last full chunk."""
    tokens = chain.from_iterable(_pieces(trace, 1 + _closed(trace, committed), committed, by))
    return f'<span class="speclab-chunk">{"".join(tokens)}</span>'


def _closed(trace: Trace, committed: int | None) -> int:
    """How many iterations stand in full chunks."""
    return len(trace.steps[:committed]) // CHUNK * CHUNK


def text_pieces(trace: Trace, by: By = "verdict") -> list[str]:
    """The prompt with the first token, then what each iteration added: piece `i` belongs to the text after `i`."""
    first, *rest = _pieces(trace, 0, None, by)
    return [prompt_html(trace) + first[0], *map("".join, rest)]


_RECENT: dict[tuple[int, By, tuple[str, ...]], tuple[Step, list[str]]] = {}
"""Tokens of the iterations written last, so that a step writes its own alone: a step holds all that they need."""


def _pieces(trace: Trace, start: int, committed: int | None, by: By) -> Iterator[list[str]]:
    """From piece `start` on: the first token, then the tokens of each iteration."""
    sources = sources_of(trace) if by == "source" else ()
    if not start:
        yield [_token(_first(trace), trace.texts, by, sources)]
    for step in trace.steps[max(start - 1, 0) : committed]:
        key = id(step), by, sources
        if key not in _RECENT:
            if len(_RECENT) >= 256:
                _RECENT.clear()
            texts = ChainMap(dict(step.texts), dict(trace.texts))
            _RECENT[key] = step, [_token(item, texts, by, sources) for item in _of(step)]  # held: its id stays its own
        yield _RECENT[key][1]


def sources_of(trace: Trace) -> tuple[str, ...]:
    """Every source in the trace, the target first, in order of appearance."""
    return tuple(dict.fromkeys(["target", *chain.from_iterable([step.tree.sources for step in trace.steps])]))


def prompt_html(trace: Trace) -> str:
    """The prompt; of a long one the head and the tail, and between them how much is left out.

    Of messages, what the chat template wrote is set apart from what was said.
    """
    count = len(trace.prompt_ids)
    if count <= HEAD + TAIL + 16:
        return tag("span", *_runs(trace, 0, count), class_="sl-p")
    gap = tag("span", f" … {count - HEAD - TAIL} tokens … ", class_="sl-gap")
    return tag("span", *_runs(trace, 0, HEAD), gap, *_runs(trace, count - TAIL, count), class_="sl-p")


def _runs(trace: Trace, first: int, last: int) -> Iterator[str]:
    """Tokens of the prompt from `first` up to `last`."""
    parts: Sequence[tuple[str | None, int, int]] = trace.prompt_parts() or [(None, 0, last)]
    for role, start, stop in parts:
        tokens = trace.prompt_ids[max(start, first) : min(stop, last)]
        words = "".join([_readable(token, trace.texts) for token in tokens])
        if role is None:
            yield words
        elif tokens:  # the template's on one line: it is not what one reads
            words = words if role else words.replace("\n", "")
            yield tag("span", words, class_="sl-role" if role else "sl-tpl", title=_wrote(role))


def _wrote(role: str) -> str:
    return f"{markup.display(role)} message" if role else "written by the chat template"


def _readable(token: int, texts: Mapping[int, str]) -> str:
    """Text as one reads it: spaces stay spaces, a line break is shown and made, what is hidden gets its code point."""
    raw = texts.get(token, "")
    if not raw.strip(" ") or token not in texts:
        return escape(markup.label(token, texts))
    body = raw.lstrip(" ")
    visible = body if body.isalnum() else " ".join([markup.display(word) if word else "" for word in body.split(" ")])
    return " " * (len(raw) - len(body)) + escape(visible).replace("⏎", "⏎\n")


def _token(item: Shown, texts: Mapping[int, str], by: By, sources: Sequence[str]) -> str:
    body = _readable(item.token, texts)
    gap = " " if body.startswith(" ") else ""  # outside the tint, so that a line breaks cleanly
    names = ", ".join([markup.quoted(token, texts) for token in item.rejected])
    tip = f"{markup.quoted(item.token, texts)} · id {item.token} · {item.kind} · from {item.source}"
    tip += f" · iteration {item.iteration}" if item.iteration else " · from the prefill"
    tip += f" · target {percent(item.prob)}" if item.prob is not None else ""
    tip += f" · chosen over {names}" if names else ""
    before = mark(item.iteration, item.gained) if item.gained else ""
    if by == "verdict" and item.kind == "corrected" and names:
        before += _rejected(item, texts, names)
    shown = f'<span class="sl-t {_class(item, by, sources)}" title="{escape(tip)}">{body.removeprefix(" ")}</span>'
    return before + gap + shown


def _class(item: Shown, by: By, sources: Sequence[str]) -> str:
    if by == "source":
        return f"sl-s{sources.index(item.source) % len(SOURCE_COLORS)}"
    if by == "iteration":
        return f"sl-i{item.iteration % 2}" if item.iteration else "sl-first"
    if by == "probability":
        return "sl-q" if item.prob is None else f"sl-q{min(int(item.prob * SHADES), SHADES - 1)}"
    return f"sl-{item.kind}"


def mark(iteration: int, gained: int) -> str:
    """Where an iteration begins, a link to it: its number and the tokens it gained."""
    tip = f"iteration {iteration}: {plural(gained, 'token')} gained"
    return f'<span class="sl-mark" data-iteration="{iteration}" title="{tip}">{iteration}<b>+{gained}</b></span>'


def _rejected(item: Shown, texts: Mapping[int, str], names: str) -> str:
    """The candidates that the target's own token replaced: folded to their number, struck when unfolded."""
    struck = [tag("s", escape(markup.label(token, texts, 16))) for token in item.rejected]
    tip = f"{plural(len(struck), 'candidate')} rejected here: {names}"
    return tag("span", f"×{len(struck)}", tag("span", *struck, class_="sl-fold"), class_="sl-x", tabindex=0, title=tip)


def legend(trace: Trace, by: By = "verdict") -> str:
    """What the colours mean, as HTML."""
    entries = {
        "verdict": [("sl-first", "first token (prefill)"),
                    *((f"sl-{kind}", LOOKS[kind].label) for kind in ("accepted", "bonus", "corrected"))],
        "source": [(f"sl-s{i % len(SOURCE_COLORS)}", name)
                   for i, name in enumerate(sources_of(trace) if by == "source" else ())],
        "iteration": [("sl-first", "first token"), ("sl-i1", "odd iterations"), ("sl-i0", "even iterations")],
        "probability": [*((f"sl-q{i}", f"target ≥ {100 * i // SHADES}%") for i in range(SHADES)),
                        ("sl-q", "not recorded")],
    }[by]  # fmt: skip
    keys = [tag("span", tag("span", escape(name), class_=f"sl-t {kind}")) for kind, name in entries]
    if by == "verdict":
        keys.append(tag("span", tag("span", "×2", class_="sl-x"), " rejected, click to unfold"))
    keys.append(tag("span", tag("span", "3", tag("b", "+5"), class_="sl-mark"), "iteration, tokens gained"))
    if trace.prompt_parts():
        keys.append(tag("span", tag("span", "chat template", class_="sl-tpl")))
    return tag("div", " ".join(keys), class_="sl-legend")


def summary(trace: Trace, cursor: int | None = None) -> str:
    """One sentence, such as: Text: 30 prompt tokens (12 of them the chat template's), then 41 generated in …."""
    kinds = ["first", *(kind for step in trace.steps[:cursor] for _, _, kind in playback.token_kinds(step))]
    counts = ", ".join([f"{kinds.count(kind)} {kind}" for kind in ("first", "accepted", "bonus", "corrected")])
    prompt, iterations = prompt_words(trace), plural(len(trace.steps[:cursor]), "iteration")
    return f"Text: {prompt}, then {len(kinds)} generated in {iterations}: {counts}."


def table(trace: Trace, cursor: int | None = None) -> str:
    """Every generated token, as an HTML table; before it the parts of a prompt of messages, in another."""
    ids, texts = trace.prompt_ids, trace.texts
    rows = (
        (place, markup.label(item.token, texts), item.token, item.kind, item.source, item.iteration,
         "" if item.prob is None else f"{item.prob:.3f}", " ".join(markup.label(t, texts) for t in item.rejected))
        for place, item in enumerate(shown_tokens(trace, cursor))
    )  # fmt: skip
    head = ("place", "token", "id", "kind", "source", "iteration", "target p", "rejected here")
    made = markup.table("Generated tokens", head, rows)
    parts = [
        (start, stop - start, _wrote(role), "".join([markup.label(token, texts) for token in ids[start:stop]]))
        for role, start, stop in trace.prompt_parts()
    ]
    return markup.table("Prompt", ("place", "tokens", "from", "text"), parts) + made if parts else made
