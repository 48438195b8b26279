"""What only records tell: where accepted tokens came from, Proposition 1 and what was measured, two routed parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from speclab.analysis.attribution import synergy
from speclab.bench import figures
from speclab.bench.report_numbers import Row, kinds, rows
from speclab.bench.report_page import block, drawing, fold, row, table, under, value
from speclab.bench.report_tables import number, percent, times
from speclab.bench.result import Bound, Head, Paths, Result, RunInfo, SourceCount
from speclab.bench.summary import ALL
from speclab.views.palette import SOURCE_COLORS

_RATES = (
    "Three measures of one thing. Accepted / drafted is the paper's: it falls with every sibling. Accepted / tried is "
    "p_s and p_t of Proposition 1: of those the walk came to. One a place: how often the first guess there is right."
)
_BOUND = (
    "Expected tokens an iteration of the trees that were verified (Proposition 1), with p_s and p_t measured on the "
    "same iterations, and of the best isotropic tree of the largest size; iterations that the end of a text cuts are "
    "left out."
)
PATHS = {
    name: (color, hatch)
    for name, color, hatch in zip(
        ("spine only", "spine continuation", "branch only"), SOURCE_COLORS, ("", "/", "."), strict=False
    )
}
"""Kinds of paths, and how their bars look."""
_PATHS = "Spine continuation: paths that leave the copied spine and go on in a branch; neither source alone has them."
_HEADS = (
    "Expected: what a part promises, the sum of its nodes' confidence. Followed: the tokens of its tree that the text "
    "went on with, chosen or not. Where the two agree the part is calibrated."
)


def blocks(results: Sequence[Result], run: RunInfo, name: str) -> str:
    """Every table for which there are records; nothing where there are none. `name`: what ids of figures begin with."""
    own = _one_each([one for one in results if one.ok], run)
    return (
        block("Where accepted tokens come from", _paths_drawn(own, name), *_both(_paths(own), _PATHS))
        + block("How often each source is right", *_both(_sources(own), _RATES))
        + block("What both sources together are worth", _synergy(results, run))
        + block("Proposition 1 against what was measured", *_both(_bounds(own), _BOUND))
        + block("The two parts, chosen or not", *_both(_heads(own), _HEADS))
    )


def _both(shown: str, note: str) -> tuple[str, ...]:
    return (shown, under((note,))) if shown else ()


def _one_each(results: Iterable[Result], run: RunInfo) -> list[Result]:
    """One result with records for each contender and prompt, in the order of the run: repeats tell the same."""
    found: dict[tuple[object, ...], Result] = {}
    for one in results:
        if one.paths or one.sources or one.bound or one.heads:
            found.setdefault(one.key[:-1], one)
    order = {name: place for place, name in enumerate(run.contenders)}
    return sorted(found.values(), key=lambda one: order.get(one.contender, len(order)))


Groups = dict[tuple[str, str], list[Result]]
"""By contender and kind."""


def _grouped(results: Sequence[Result]) -> Groups:
    """Each contender's over all kinds, then its kinds where there are several."""
    groups: Groups = {}
    several = len(kinds(results)) > 1
    for one in results:
        groups.setdefault((one.contender, ALL if several else one.kind), []).append(one)
        if several:
            groups.setdefault((one.contender, one.kind), []).append(one)
    return groups


def _shown(heads: Sequence[str], lines: Mapping[tuple[str, str], Sequence[str]], words: int, caption: str = "") -> str:
    """Rows over all kinds, and those of single kinds folded away."""
    several = {kind for _, kind in lines} > {ALL}
    whole = [line for (_, kind), some in lines.items() for line in some if kind == ALL or not several]
    single = [line for (_, kind), some in lines.items() for line in some if kind != ALL and several]
    if not whole:
        return ""
    by_kind = fold("by kind of prompt", table(heads, single, caption, words=words)) if single else ""
    return table(heads, whole, caption, words=words) + by_kind


def _path_shares(results: Sequence[Result]) -> dict[tuple[str, str], tuple[int, dict[str, float]]]:
    """Accepted tokens, and the share of each kind of path, of contenders that copied any."""
    found = {}
    for at, own in _grouped([one for one in results if one.paths]).items():
        parts = [one.paths for one in own if one.paths]
        total = Paths(**{field: sum(getattr(part, field) for part in parts) for field in Paths.model_fields})
        accepted = total.spine_only + total.spine_continuation + total.branch_only
        if total.spine_only or total.spine_continuation:
            amounts = (total.spine_only, total.spine_continuation, total.branch_only)
            found[at] = accepted, {part: 100 * n / accepted for part, n in zip(PATHS, amounts, strict=True)}
    return found


def _paths(results: Sequence[Result]) -> str:
    lines = {
        at: [row(at[0], (at[1], value(f"{accepted:,}"), *(value(f"{share:.1f}%") for share in shares.values())))]
        for at, (accepted, shares) in _path_shares(results).items()
    }
    return _shown(("", "kind", "accepted tokens", *PATHS), lines, words=2)


def _paths_drawn(results: Sequence[Result], name: str) -> str:
    shares = {f"{who}, {kind}": split for (who, kind), (_, split) in _path_shares(results).items()}
    mixed = {who: split for who, split in shares.items() if split["branch only"]}
    if not mixed:
        return ""
    label = "Accepted tokens by the kind of path they lie on, in percent; the table below has the numbers."
    return drawing(figures.shares(mixed, "% of accepted tokens", PATHS), label, "", f"{name}-paths")


def _counts(results: Iterable[Result]) -> dict[str, SourceCount]:
    total: dict[str, dict[str, int]] = {}
    for one in results:
        for source, count in (one.sources or {}).items():
            into = total.setdefault(source, dict.fromkeys(SourceCount.model_fields, 0))
            for field, amount in count.model_dump().items():
                into[field] += amount
    return {source: SourceCount(**fields) for source, fields in total.items()}


def _sources(results: Sequence[Result]) -> str:
    groups = _grouped([one for one in results if one.sources])
    lines = {at: [_rates(at, *found) for found in sorted(_counts(own).items())] for at, own in groups.items()}
    heads = ("", "kind", "source", "drafted", "accepted / drafted", "accepted / tried", "one a place")
    return _shown(heads, lines, words=3)


def _rates(at: tuple[str, str], source: str, count: SourceCount) -> str:
    rates = ((count.accepted, count.drafted), (count.accepted, count.tried), (count.first, count.places))
    shown = (value(percent(_over(*rate))) for rate in rates)
    return row(at[0], (at[1], source, value(f"{count.drafted:,}"), *shown))


def _over(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class _Combined:
    """A contender that drafts from several sources, and those that draft from one of them alone."""

    whole: Row
    singles: tuple[Row, ...]


def _combined(found: Sequence[Row]) -> list[_Combined]:
    sources = {each.name: set(_counts(each.results)) for each in found}
    return [
        _Combined(each, singles)
        for each in found
        if len(own := sources[each.name]) > 1
        and (singles := tuple(one for one in found if len(sources[one.name]) == 1 and sources[one.name] < own))
    ]


def _synergy(results: Sequence[Result], run: RunInfo) -> str:
    """Tokens an iteration of a combination over those of the best source alone, kind by kind (GOOSE, section 5.4)."""
    lines = []
    for kind in kinds(results):
        for each in _combined(rows([one for one in results if one.kind == kind], run)):
            whole = each.whole.mean(_tokens)
            singles: Mapping[str, float | None] = {one.name: one.mean(_tokens) for one in each.singles}
            known = [amount for amount in singles.values() if amount]
            ratio = synergy(whole, known) if whole and known else None
            alone = ", ".join(f"{name} {number(amount)}" for name, amount in singles.items())
            lines.append(row(each.whole.name, (kind, alone, value(number(whole)), value(times(ratio)))))
    heads = ("", "kind", "one source alone, tokens an iteration", "together", "synergy")
    return table(heads, lines, words=3) if lines else ""


def _tokens(result: Result) -> float | None:
    return result.tokens_per_iteration


def _bounds(results: Sequence[Result]) -> str:
    lines = {}
    for at, own in _grouped([one for one in results if one.bound]).items():
        parts = [one.bound for one in own if one.bound and one.bound.iterations]
        if parts:
            fields = ("isotropic", "expected", "by_rate", "measured")
            isotropic, expected, by_rate, measured = (_weighted(parts, field) for field in fields)
            cells = (number(isotropic), _held(expected, measured), _held(by_rate, measured), number(measured))
            lines[at] = [row(at[0], (at[1], *(value(cell) for cell in cells)))]
    heads = ("", "kind", "isotropic", "bound, accepted / drafted", "bound, accepted / tried", "measured")
    return _shown(heads, lines, words=2, caption="Tokens an iteration")


def _weighted(parts: Sequence[Bound], field: str) -> float:
    return sum(part.iterations * float(getattr(part, field)) for part in parts) / sum(part.iterations for part in parts)


def _held(bound: float, measured: float) -> str:
    return f"{number(bound)} {'holds' if bound <= measured else 'fails'}"


def _heads(results: Sequence[Result]) -> str:
    lines = {}
    for at, own in _grouped([one for one in results if one.heads]).items():
        every = [one.heads for one in own if one.heads]
        places = range(max(len(heads) for heads in every))
        parts = [[heads[place] for heads in every if len(heads) > place] for place in places]
        lines[at] = [row(at[0], (at[1], *_part(some, every))) for some in parts]
    heads = ("", "kind", "part", "chosen", "mean confidence", "share followed", "expected tokens", "followed tokens")
    return _shown(heads, lines, words=3)


def _part(parts: Sequence[Head], every: Sequence[tuple[Head, ...]]) -> tuple[str, ...]:
    chosen, all_chosen = sum(part.chosen for part in parts), sum(part.chosen for heads in every for part in heads)
    figures = (
        mean(getattr(part, field) for part in parts) for field in ("confidence", "share", "expected", "followed")
    )
    confidence, share, expected, followed = figures
    shown = (
        percent(_over(chosen, all_chosen)),
        percent(confidence),
        percent(share),
        number(expected),
        number(followed),
    )
    return (parts[0].name, *(value(each) for each in shown))
