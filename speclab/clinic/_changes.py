"""What may be wrong with a pass: hypotheses, each with the pass that it would be.

The same changes are tried for the target and for a draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, inf

from speclab.clinic._faults import NO_WINDOW, final_norm, without_final_norm
from speclab.clinic._passes import BOTH, LEAST_RANKS, Change, Passes
from speclab.clinic._plain import differences
from speclab.models.masks import MaskPlan
from speclab.tree import Bools

SCAN = 4096
"""Most copies of rows that one scan runs: a second on a laptop."""
NEAR = 17
"""Positions around its own that are tried for each wrong row: padding is seldom wider."""
MARKS = 40
"""Ends of hidden ranges of the prefix that are tried first, before the best range's own ends."""
MOST = 64
"""Most sets of kept rows of one kind that are tried."""
SHORT = range(1, 5)
"""Entries by which a prefix may end too early."""
PADS = range(1, 17)
"""Padding tokens before a prompt."""


def answers(passes: Passes) -> Iterator[Change]:
    """The pass was right, and its answers were taken wrongly."""
    logits = passes.logits
    root = logits.clone()
    root[0] = -inf
    root[0, passes.step.tree.token[1:2].tolist()] = 0
    says = "the root answers with the first drafted token"
    yield Change("choice", says, lambda: root, "unverified first token")
    yield _other_rows(passes, "answer", logits, "of this pass")
    if passes.rejected is not None:
        yield _other_rows(passes, "stale_logits", passes.rejected, "of the pass before")
    top = passes.step.nodes[passes.first].target_top
    off = top[0][0] - int(logits[passes.first].argmax())
    says = f"token ids are {off:+d} off: look at the map from the draft's vocabulary"
    yield Change("ids", says, lambda: logits.roll(off, -1))
    pairs = []
    for row in passes.wrong:
        recorded = [token for token, _ in passes.step.nodes[row].target_top]
        if len(recorded) >= LEAST_RANKS:
            best = logits[row].topk(len(recorded)).indices.tolist()
            pairs += [pair for pair in zip(recorded, best, strict=True) if pair[0] != pair[1]]
    which = ", ".join([f"{given} in the place of {own}" for given, own in dict(pairs[:3]).items()])
    says = f"probabilities are right and ids are not ({which}): look at the map of ids"
    yield Change("ids", says, lambda: logits, weight=1.0, ranks=True)
    if len(top) > 1:
        tokens = [token for token, _ in top]
        spread = torch.tensor([prob for _, prob in top]).clamp_min(1e-30).log().std(correction=0)
        heat = float(logits[passes.first, tokens].std(correction=0) / spread)
        says = f"the logits are at temperature {heat:.3g}"
        yield Change("temperature", says, lambda: logits / heat * passes.oracle.heat)


def _other_rows(passes: Passes, kind: str, logits: Tensor, whose: str) -> Change:
    """Each wrong row with the best of these answers."""
    oracle = passes.oracle
    changed = passes.logits.clone()
    words = []
    for row in passes.wrong:
        top = passes.step.nodes[row].target_top
        others = oracle.log_probs(passes.step, logits, [row] * len(logits))
        best = int(np.argmin([oracle.gap(differences(top, other)) for other in others]))
        changed[row] = logits[best]
        words.append(f"row {row} with row {best}")
    says = f"rows answer with other rows {whose} ({', '.join(words[:3])})"
    return Change(kind, says, lambda: changed, weight=0.1 * len(words))


def positions(passes: Passes) -> Iterator[Change]:
    """Along the rows, what fits row by row, and all off by what fits the first wrong row."""
    own = passes.own["positions"]
    along = own[0] + np.arange(passes.n)
    says = "positions are counted along the rows"
    yield passes.change("position", says, "wrong positions", positions=along)
    most = passes.right.context or NO_WINDOW
    near = {}
    for row in passes.wrong:
        near[row] = [0, own[0], *range(max(0, own[row] - NEAR), min(own[row] + NEAR, most))]
    values, moved = _scan(passes, "positions", near)
    which = [f"row {row} at {values[row]} instead of {own[row]}" for row in moved[:3]]
    says = f"rows have wrong positions ({', '.join(which)})"
    yield passes.change("position", says, weight=0.3 * len(moved), positions=values)
    shift = int((values - own)[passes.first])
    off = f"positions are {abs(shift)} too {'high' if shift > 0 else 'low'}"
    for rows, first, fault in (("all", 0, "padded positions"), ("drafted", 1, "wrong positions")):
        changed = own.copy()
        changed[first:] += shift
        yield passes.change("position", f"{rows} {off}", fault, positions=changed)


def masks(passes: Passes) -> Iterator[Change]:
    """All rows see too much or too little of the tree."""
    for says, tree in _wrong_masks(passes).items():
        fault = "sibling visible" if "siblings" in says else ""
        yield passes.change("mask", says, fault, tree=tree)


def _wrong_masks(passes: Passes) -> dict[str, Bools]:
    """Wrong masks by what they do."""
    own = passes.own["tree"]
    n = passes.n
    rows = np.arange(n)
    parent = passes.step.tree.parent
    depth = passes.step.tree.depth
    eye = np.eye(n, dtype=np.bool_)
    above = (parent[:, None] == rows[None]) & (rows[:, None] > 0)
    siblings = parent[:, None] == parent[None]
    root = np.tile(rows == 0, (n, 1))
    named = {
        "rows see the siblings before them": own | np.tril(siblings),
        "rows see all of their siblings": own | siblings,
        "rows see all rows of lower depth": (depth[:, None] > depth[None]) | eye,
        "rows see all rows before them, as in a chain": np.tri(n, dtype=np.bool_),
        "rows see only their parent": eye | above,
        "rows see no other row": eye,
        "no row sees the root": own & ~(root & ~eye),
        "drafted rows do not see themselves": own & ~(eye & ~root),
        "rows see all rows": np.ones((n, n), dtype=np.bool_),
        "the mask is transposed": own.T,
        "the mask is one column off": np.roll(own, 1, 1) | eye,
    }
    if passes.before is not None:
        old = eye.copy()
        earlier = passes.before.tree.ancestor_mask()[:n, :n]
        old[: len(earlier), : len(earlier)] = earlier
        named["rows have the mask of the iteration before"] = old
    for other in np.flatnonzero(depth == depth[passes.first]).tolist():
        order = rows.copy()
        order[[passes.first, other]] = other, passes.first
        named[f"the masks of rows {passes.first} and {other} are exchanged"] = own[order]
    return named


def prefixes(passes: Passes) -> Iterator[Change]:
    """The range of the prefix that the first wrong row does not see: coarse, then each end."""
    length = len(passes.text)
    for short in SHORT:
        if short < length:
            entries = _without(passes, length - short, length)
            says = f"the prefix ends {short} entries earlier"
            yield passes.change("prefix", says, entries=entries, shift=-short)
    stride = max(1, length // MARKS)
    ranges = [*combinations([*range(0, length, stride), length], 2)]
    first = stop = 0
    for _ in range(3):
        ranges = [(a, b) for a, b in ranges if 0 <= a < b <= length and b - a < length]
        if not ranges:
            return
        hidden = [_without(passes, *ends) for ends in ranges]
        gaps = passes.copies(passes.first, "entries", hidden, {})
        first, stop = ranges[int(np.argmin(gaps))]
        near = range(-stride, stride + 1)
        ranges = [(first + move, stop) for move in near] + [(first, stop + move) for move in near]
    entries = np.tile(passes.own["entries"], (passes.n, 1))
    entries[passes.wrong] = _without(passes, first, stop)
    rows = "no row sees" if len(passes.wrong) == passes.n else "wrong rows do not see"
    says = f"{rows} entries {first} to {stop - 1} of the prefix"
    yield passes.change("prefix", says, entries=entries)


def _without(passes: Passes, first: int, stop: int) -> Bools:
    entries: Bools = passes.own["entries"].copy()
    entries[np.flatnonzero(entries)[first:stop]] = False
    return entries


def kept_rows(passes: Passes) -> Iterator[Change]:
    """Rejected rows of the iteration before that stayed, or took the place of kept ones."""
    if passes.before is None:
        return
    path = passes.path
    m = len(path)
    every = [*range(passes.right.length - passes.start)]
    rejected = [row for row in every if row not in path]
    shifted = [min(row + (1 if row else 0), every[-1]) for row in path]
    # a draft keeps the rows that it ran, and runs the rest of the path again
    orders = [[*range(count), *path[count:]] for count in range(2, m + 1)]
    orders += [every, every[-m:], [0, *path], [*path[:-1], 0], shifted]
    orders += [[*path, row] for row in rejected[:MOST]]
    pairs = [*product(path, rejected)][:MOST]
    orders += [sorted({*path, other} - {gone}) for gone, other in pairs]
    for rows in orders:
        if len(rows) > len(every) or rows == path:
            continue
        says = f"iteration {passes.step.index} kept rows {rows} instead of {path}"
        make = partial(passes.written, rows)
        more = len(rows) - m
        kind, fault = ("prefix", "phantom KV rows") if more else ("order", "")
        for shift in {0, more}:
            yield passes.change(kind, says, fault, 0.2, make=make, shift=shift)


def scans(passes: Passes) -> Iterator[Change]:
    """What scans put together row by row: what rows see, and their tokens."""
    own = passes.own["tree"]
    shapes = [*_wrong_masks(passes).values()]
    one = np.eye(passes.n, dtype=np.bool_)
    options: dict[int, list[Any]] = {}
    for row in passes.wrong[: SCAN // passes.n]:
        seen = [own[row], *(own[row] ^ one), *[shape[row] for shape in shapes]]
        options[row] = [one[row] | each for each in seen]  # a copy always sees itself
    tree, moved = _scan(passes, "tree", options)
    which = []
    for row, other in np.argwhere(tree != own)[:3].tolist():
        verb = "sees" if tree[row, other] else "does not see"
        which.append(f"row {row} {verb} row {other}")
    says = f"the mask is wrong ({', '.join(which)})"
    yield passes.change("mask", says, weight=0.3 * len(moved), tree=tree)

    ids = passes.own["tokens"].tolist()
    last = passes.oracle.pair.vocab_size - 1
    near = {*ids, *passes.oracle.text[-8:], 0, last}
    if passes.before is not None:
        near.update(passes.before.tree.token.tolist())
    choices = {row: [*near, max(ids[row] - 1, 0), min(ids[row] + 1, last)] for row in passes.wrong}
    tokens, moved = _scan(passes, "tokens", choices)
    texts = passes.oracle.pair.token_texts(tokens[moved[:3]].tolist())
    has = [f"row {row} has {texts[int(tokens[row])]!r}" for row in moved[:3]]
    says = f"rows have other tokens ({', '.join(has)})"
    yield passes.change("token", says, weight=0.4 * len(moved), tokens=tokens)


def _scan(passes: Passes, what: str, options: Mapping[int, Sequence[Any]]) -> tuple[Any, list[int]]:
    """For each row, the option that cuts its gap to a third, given the choices for earlier rows;
    and the changed rows."""
    values = passes.own[what].copy()
    for row, choices in options.items():
        gaps = passes.copies(row, what, choices, {what: values})
        if min(gaps) < passes.measured.gaps[row] / 3:
            values[row] = choices[int(np.argmin(gaps))]
    own = passes.own[what]
    return values, [row for row in options if np.any(values[row] != own[row])]


def texts(passes: Passes) -> Iterator[Change]:
    """Another text in the cache; in the first iteration another prompt, or padding before it."""
    text = list(passes.text)
    others = {"the prefix contains the root too": [*text, int(passes.own["tokens"][0])]}
    if passes.oracle.drafts:
        others["the draft does not see the newest token"] = text[:-1]
    if passes.step.index == 0:
        start = getattr(passes.oracle.pair.tokenizer, "bos_token_id", None) or 0
        others["the prompt begins with one start token more"] = [start, *text]
        others["the prompt's first token is in the cache twice"] = [*text[:1], *text]
        others["the prompt's first token is missing"] = text[1:]
        others["the token before the root is in the cache twice"] = [*text, *text[-1:]]
        for pads in PADS:
            places = [*[0] * pads, *range(len(text))]
            make = partial(passes.fresh, [*[0] * pads, *text], places=places)
            says = f"rows see {pads} padding tokens before the prompt"
            yield passes.change("prefix", says, make=make)
    for says, tokens in others.items():
        make = partial(passes.fresh, tokens)
        for shift in (0, len(tokens) - len(text)):
            yield passes.change("prefix", says, make=make, shift=shift)


def caches(passes: Passes) -> Iterator[Change]:
    """Keys, values or a layer in which the first rows of the step before stayed, uncopied."""
    if passes.before is None:
        return
    rows = range(len(passes.path))
    for part in BOTH:
        make = partial(passes.written, rows, (part,))
        says = f"only the {part} of the cache kept the first rows"
        yield passes.change("cache", says, make=make)
    for layer in range(len(passes.right.cache.layers)):
        make = partial(passes.written, rows, only=layer)
        says = f"layer {layer} of the cache kept the first rows"
        yield passes.change("cache", says, make=make)


def models(passes: Passes) -> Iterator[Change]:
    """The window and the final norm."""
    plan = passes.right.plan
    if plan.window is not None:
        says = "the model ignores its sliding window"
        make = partial(passes.fresh, window=NO_WINDOW)
        yield passes.change("window", says, "window run as full attention", make=make)
        says = "only the tree's pass ignores the sliding window"
        runner = passes.written(passes.path)
        runner.plan = MaskPlan(NO_WINDOW, plan.kinds)
        yield passes.change("window", says, make=lambda: runner)
    if final_norm(passes.oracle.model):
        model = without_final_norm(passes.oracle.model)
        make = partial(passes.fresh, model=model)
        yield passes.change("norm", "the final norm is left out", make=make)


GROUPS = ((answers, positions, masks, prefixes, kept_rows), (scans,), (texts, caches, models))
"""All changes, the fastest first."""
