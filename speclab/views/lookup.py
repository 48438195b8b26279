"""What a drafter has learned of one token: its successors and their scores, row by row."""

from __future__ import annotations

from collections.abc import Mapping

from speclab.trace.records import Lookup, Row, Step, Trace
from speclab.views import markup
from speclab.views.palette import LOOKS
from speclab.views.tokens import quoted
from speclab.views.values import bar, cards, said, spoken, written
from speclab.views.walk import verified_root

_NAMES = {1: "unigram", 2: "bigram"}


def summary(found: Lookup) -> str:
    """One sentence, such as: After '␣the', as iteration 5 left the table, the likeliest are '␣king' 41% (unigram)."""
    row = found.used
    if row is None:
        key = _key(found, found.rows[-1])
        return f"Nothing was learned of what follows {key} {_when(found)}."
    best = ", ".join(f"{quoted(token, found.texts)} {score:.0%}" for token, score in row.successors[:3])
    return f"After {_key(found, row)}, {_when(found)}, the likeliest are {best} ({name_of(row)})."


def key_at(trace: Trace, cursor: int, node: int | None = None) -> tuple[int, ...]:
    """The one before and the token of a node (by default the root) of iteration `cursor`; at 0 the newest tokens."""
    newest = (*trace.prompt_ids, *trace.token_ids(max(cursor - 1, 0)))[-2:]
    if not cursor:
        return newest
    step = trace.steps[cursor - 1]
    parent, token = int(step.tree.parent[node or 0]), int(step.tree.token[node or 0])
    if parent >= 0:
        return int(step.tree.token[parent]), token
    return newest if verified_root(step) else (newest[-1], token)


def children_of(step: Step, node: int) -> dict[int, str]:
    """Tokens drafted below a node, with their verdicts."""
    return {int(step.tree.token[child]): step.nodes[child].verdict for child in step.tree.children[node]}


def name_of(row: Row) -> str:
    """`unigram`, `bigram`, `3-gram`."""
    return _NAMES.get(len(row.key), f"{len(row.key)}-gram")


def lookup_html(found: Lookup, drafted: Mapping[int, str] | None = None) -> str:
    """The rows side by side, each successor with its score as a number and a bar.

    `drafted`: verdicts of the tokens that the iteration shown drafted here, to be set beside them.
    """
    values = " · ".join(f"{spoken(name)} {written(name, value)}" for name, value in found.values.items())
    most = max((score for row in found.rows for _, score in row.successors), default=1.0)
    tables = (_table(found, row, most, drafted or {}) for row in found.rows)
    words = said("Successors", summary(found)), said("State of the table", f"{values}.")
    return markup.tag("div", *words, cards(*tables))


def _table(found: Lookup, row: Row, most: float, drafted: Mapping[int, str]) -> str:
    name = f"{name_of(row).capitalize()}: after {_key(found, row)}"
    if not row.successors:
        return said(name, "Not seen yet.")
    color = LOOKS["accepted"].color if row is found.used else LOOKS["not reached"].color
    known = [drafted.get(token) for token, _ in row.successors]
    rows = (
        (rank, quoted(token, found.texts), token, f"{score:.3f}", bar(score / most, color, 60), verdict or "")
        for rank, ((token, score), verdict) in enumerate(zip(row.successors, known, strict=True), start=1)
    )
    use = "drafts are made from this row" if row is found.used else "not used: the longer key is known"
    head = ("rank", "successor", "id", "score", "", "drafted here" if any(known) else "")
    return markup.table(f"{name} ({use})", head, rows)


def _key(found: Lookup, row: Row) -> str:
    return " ".join(quoted(token, found.texts) for token in row.key)


def _when(found: Lookup) -> str:
    return f"as iteration {found.after} left the table" if found.after else "as the prompt left the table"
