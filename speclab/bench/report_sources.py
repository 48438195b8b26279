"""What only records tell: where accepted tokens came from, Proposition 1 and what was measured, two routed parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from statistics import mean

from speclab.analysis.attribution import Attribution, SourceRate, synergy
from speclab.analysis.routing import Part
from speclab.bench import figures
from speclab.bench.page import (
    TOKENS,
    Cell,
    Item,
    Line,
    Page,
    block,
    drawing,
    fold,
    number,
    percent,
    table,
    text,
    times,
    words,
)
from speclab.bench.result import Bound, Result
from speclab.bench.summary import ALL, Summary, kinds

NOTES = {
    "paths": "Spine continuation: paths that leave the copied spine and go on in a branch; neither source alone has "
    "them.",
    "sources": "Three measures of one thing. Accepted / drafted is the paper's: it falls with every sibling. Accepted "
    "/ tried is p_s and p_t of Proposition 1: of those that verification came to. First guess: how often the first "
    "token at a place is right.",
    "bound": "Expected tokens per iteration of the trees that were verified (Proposition 1), with p_s and p_t measured "
    "on the same iterations, and of the best isotropic tree of the largest size; iterations that the end of a text "
    "cuts are left out.",
    "heads": "Expected: what a part promises, the sum of its nodes' confidence. Followed: the tokens of its tree that "
    "the text went on with, chosen or not. Where the two agree the part is calibrated.",
}
Rows = Callable[[str, str, Sequence[Result]], Iterable[Line]]
"""The rows of one method on one kind of prompt."""


def recorded(page: Page) -> list[Item]:
    """Every table for which there are records; nothing where there are none."""
    own = _once(page)
    return [
        *block("Where accepted tokens come from", *_paths_drawn(page, own), *_table(
            own, ("", "kind", "accepted tokens", *figures.PATHS), _path_lines, "paths", 2)),
        *block("How often each source is right", *_table(
            own, ("", "kind", "source", "drafted", "accepted / drafted", "accepted / tried", "first guess"),
            _source_lines, "sources", 3)),
        *block("What both sources together are worth", *_synergy(page)),
        *block("Proposition 1 against what was measured", *_table(
            own, ("", "kind", "isotropic", "bound, accepted / drafted", "bound, accepted / tried", "measured"),
            _bound_lines, "bound", 2)),
        *block("The two parts, chosen or not", *_table(
            own, ("", "kind", "part", "chosen", "mean confidence", "share followed", "expected tokens",
                  "followed tokens"), _head_lines, "heads", 3)),
    ]  # fmt: skip


def _once(page: Page) -> dict[tuple[str, str], list[Result]]:
    """By method and kind, one result with records for each prompt: repeats tell the same."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for one in page.summaries:
        first = {result.prompt: result for result in reversed(one.results) if result.paths is not None}
        if first:
            groups[one.method, one.kind] = list(first.values())[::-1]
    return groups


def _table(
    groups: dict[tuple[str, str], list[Result]], head: Sequence[str], rows: Rows, note: str, text_columns: int
) -> list[Item]:
    """Rows over all kinds, and those of single kinds folded away."""
    lines = {at: list(rows(*at, results)) for at, results in groups.items()}
    several = any(kind == ALL for _, kind in lines)
    whole = [line for (_, kind), own in lines.items() for line in own if (kind == ALL) == several]
    single = [line for (_, kind), own in lines.items() for line in own if several and kind != ALL]
    if not whole:
        return []
    by_kind = fold("by kind of prompt", table(head, single, text_columns=text_columns))
    return [*table(head, whole, text_columns=text_columns), *by_kind, text(NOTES[note], "under")]


def _path_shares(results: Sequence[Result]) -> tuple[int, dict[str, float]] | None:
    """Accepted tokens, and the share of each kind of path in percent; None where nothing was copied."""
    parts = [astuple(one.paths) for one in results if one.paths]
    total = Attribution(*(sum(column) for column in zip(*parts, strict=True)))
    amounts = (total.spine_only, total.spine_continuation, total.branch_only)
    if not any(amounts[:2]):
        return None
    return total.accepted, {part: 100 * n / total.accepted for part, n in zip(figures.PATHS, amounts, strict=True)}


def _path_lines(method: str, kind: str, results: Sequence[Result]) -> Iterable[Line]:
    found = _path_shares(results)
    if found:
        yield Line(method, [words(kind), Cell(f"{found[0]:,}"), *(Cell(f"{s:.1f}%") for s in found[1].values())])


def _paths_drawn(page: Page, groups: dict[tuple[str, str], list[Result]]) -> list[Item]:
    shares = {f"{method}, {kind}": found[1] for (method, kind), own in groups.items() if (found := _path_shares(own))}
    mixed = {name: split for name, split in shares.items() if split["branch only"]}
    if not mixed:
        return []
    label = "Accepted tokens by the kind of path they lie on, in percent; the table below has the numbers."
    return drawing(figures.stacked(mixed, "% of accepted tokens", figures.PATHS), label, [], f"{page.id}-paths")


def _rates(results: Iterable[Result]) -> dict[str, SourceRate]:
    total: dict[str, SourceRate] = {}
    for one in results:
        for source, rate in (one.sources or {}).items():
            total[source] = total.get(source, SourceRate()) + rate
    return dict(sorted(total.items()))


def _source_lines(method: str, kind: str, results: Sequence[Result]) -> Iterable[Line]:
    for source, rate in _rates(results).items():
        shares = (rate.drafted and rate.share, rate.tried and rate.rate, rate.places and rate.first_rate)
        cells = (Cell(percent(share or None)) for share in shares)
        yield Line(method, [words(kind), words(source), Cell(f"{rate.drafted:,}"), *cells])


def _synergy(page: Page) -> list[Item]:
    """Tokens per iteration of a method with several sources over those of the best single source (GOOSE, 5.4)."""
    lines = []
    for kind in kinds(page.stored.results):
        found = [one for one in page.summaries if one.kind == kind]
        sources = {one.method: set(_rates(one.results)) for one in found}
        for one in found:
            own = sources[one.method]
            alone = [other for other in found if len(sources[other.method]) == 1 and sources[other.method] < own]
            if len(own) > 1 and alone:
                lines.append(_synergy_line(one, alone))
    head = ("", "kind", "one source alone, tokens per iteration", "together", "synergy")
    return table(head, lines, text_columns=3)


def _synergy_line(one: Summary, alone: Sequence[Summary]) -> Line:
    whole, singles = one.mean(TOKENS.figure), {other.method: other.mean(TOKENS.figure) for other in alone}
    known = [amount for amount in singles.values() if amount]
    ratio = synergy(whole, known) if whole and known else None
    singly = ", ".join(f"{name} {number(amount)}" for name, amount in singles.items())
    return Line(one.method, [words(one.kind), words(singly), Cell(number(whole)), Cell(times(ratio))])


def _bound_lines(method: str, kind: str, results: Sequence[Result]) -> Iterable[Line]:
    parts = [one.bound for one in results if one.bound and one.bound.iterations]
    if parts:
        isotropic, expected, by_rate, measured = (
            _weighted(parts, field) for field in ("isotropic", "expected", "by_rate", "measured")
        )
        held = (f"{number(b)} {'holds' if b <= measured else 'fails'}" for b in (expected, by_rate))
        yield Line(method, [words(kind), *map(Cell, (number(isotropic), *held, number(measured)))])


def _weighted(parts: Sequence[Bound], field: str) -> float:
    return sum(part.iterations * float(getattr(part, field)) for part in parts) / sum(part.iterations for part in parts)


def _head_lines(method: str, kind: str, results: Sequence[Result]) -> Iterable[Line]:
    every = [one.heads for one in results if one.heads]
    all_chosen = sum(part.chosen for heads in every for part in heads)
    for place in range(max(map(len, every), default=0)):
        parts = [heads[place] for heads in every if len(heads) > place]
        chosen = sum(part.chosen for part in parts)
        confidence, share = (percent(_mean(parts, field)) for field in ("confidence", "share"))
        expected, followed = (number(_mean(parts, field)) for field in ("expected", "followed"))
        share_chosen = percent(chosen / all_chosen if all_chosen else None)
        cells = map(Cell, (share_chosen, confidence, share, expected, followed))
        yield Line(method, [words(kind), words(parts[0].name), *cells])


def _mean(parts: Sequence[Part], field: str) -> float:
    return mean(float(getattr(part, field)) for part in parts)
