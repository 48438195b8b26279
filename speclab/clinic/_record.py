"""Contradictions in the record of a run, found without a model.

A detector reads one Step, and what the passes before it add up to. It knows nothing of the engine that
decoded: it takes the tokens, parents, mask, slots, choices, accepted and committed tokens of one
verification pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from speclab.trace.records import UNKNOWN, Finding, Step, Trace

BLOCK = "a block of draws"
REJECTION = ("independent draws", "draws without replacement")
"""With the block rule, those that draw from what a refusal leaves, where the refused token has no mass."""
GREEDY = "greedy"
MATCH = "sample and match"
FOLLOWS_THE_TARGET = (GREEDY, MATCH)
"""Acceptance rules under which exactly the child with the target's choice is accepted."""
NEARLY = 1e-3
"""Share by which a choice's probability may be below the best. It separates a choice that is not the
best from two logits that are equal in half precision, whose recorded probabilities differ by less."""
RECORDED = "recorded"
"""The note of another decoder's steps, and their rule if they were sampled without naming one."""


@dataclass(frozen=True)
class Contradiction:
    """What is wrong at a node, None for the whole step; `text_is_right`: it only costs accepted tokens."""

    node: int | None
    sentence: str
    text_is_right: bool = False


@dataclass(frozen=True)
class Before:
    """What comes before a step: the `text` with its prompt, how many more tokens may be committed.

    `eos_ids`: what ends a text. `offset`: of all positions. `processed`: choices were made after
    logits processors, and top-k before. `last`: no pass comes after this one.
    """

    text: tuple[int, ...]
    room: int
    eos_ids: frozenset[int] = frozenset()
    offset: int = 0
    processed: bool = False
    last: bool = False


def name(step: Step, node: int) -> str:
    """`node 2 ' the'`."""
    row = f" (row {step.rows[node]} of the file)" if step.rows else ""
    return f"node {node}{row} {word(step, int(step.tree.token[node]))}"


def word(step: Step, token: int | None) -> str:
    """The text of a token, in quotes; the token's number if it has none."""
    if token is None or token == UNKNOWN:
        return "an unknown token"
    return repr(step.texts.get(token, str(token)))


def position(step: Step, before: Before) -> Iterator[Contradiction]:
    """A row's position is the prefix's length and its depth."""
    for row, given in enumerate(step.position):
        own = step.prefix_length + int(step.tree.depth[row]) + before.offset
        if given != own:
            yield Contradiction(row, f"{name(step, row)} has position {given}, expected {own}.")


def mask(step: Step, _: Before) -> Iterator[Contradiction]:
    """A row sees itself and its ancestors, and nothing else of the tree."""
    expected = step.tree.ancestor_mask()
    for row, column in np.argwhere(step.mask != expected).tolist():
        sees = f"{name(step, row)} sees {name(step, column)}, which is not its ancestor."
        if row == column:
            sees = f"{name(step, row)} does not see itself."
        elif expected[row, column]:
            sees = f"{name(step, row)} does not see {name(step, column)}, its ancestor."
        elif step.tree.parent[row] == step.tree.parent[column]:
            sees = f"{name(step, row)} sees {name(step, column)}, its sibling."
        yield Contradiction(row, sees)


def prefix(step: Step, _: Before) -> Iterator[Contradiction]:
    """Rows at one depth see as many entries of the prefix, and deeper ones not more.

    A window hides the first entries, so a hidden range that begins later is wrong.
    """
    for row, first, last in step.hidden_prefix:
        if first:
            hidden = f"entries {first} to {last} of the prefix"
            yield Contradiction(row, f"{name(step, row)} does not see {hidden}.")
    most = step.prefix_length
    by_depth: dict[int, int] = {}
    for row, seen in enumerate(step.prefix_seen):
        depth = int(step.tree.depth[row])
        most = by_depth.get(depth - 1, most)
        expected = by_depth.setdefault(depth, min(seen, most))
        if seen != expected:
            sees = f"{name(step, row)} sees {seen} prefix entries, expected {expected}."
            yield Contradiction(row, sees)


def slot(step: Step, _: Before) -> Iterator[Contradiction]:
    """Each row has a slot of its own; the rows of the path are kept, and no others."""
    slots = [node.kv_slot for node in step.nodes]
    for row, kv_slot in enumerate(slots):
        if kv_slot in slots[:row]:
            sentence = f"{name(step, row)} was written to slot {kv_slot}, as another row was."
            yield Contradiction(row, sentence)
    if not step.caches:
        return
    cache = step.caches[0]
    path_slots = [slots[node] for node in step.path[: len(step.committed)]]
    if cache.after > cache.committed:
        sentence = (
            f"The target's cache has {cache.after} entries for {cache.committed} committed tokens"
        )
        for row, kv_slot in enumerate(slots):
            if kv_slot in cache.kept and kv_slot not in path_slots:
                yield Contradiction(row, f"{sentence}: the row of {name(step, row)} was kept.")
                return
        yield Contradiction(None, f"{sentence}.")
    elif cache.kept and "slot" not in step.missing and list(cache.kept) != path_slots:
        sentence = f"Slots {list(cache.kept)} were kept, but the accepted path is in {path_slots}."
        yield Contradiction(None, sentence)


def path(step: Step, _: Before) -> Iterator[Contradiction]:
    """The accepted nodes are a path from the root."""
    above = -1 if 0 in step.drafted else 0
    for node in step.accepted:
        if step.tree.parent[node] != above:
            sentence = (
                f"{name(step, node)} was accepted after node {above}, which is not its parent."
            )
            yield Contradiction(node, sentence)
        above = node


def choice(step: Step, before: Before) -> Iterator[Contradiction]:
    """An accepted child carries the target's choice, and no child that carries it is rejected; a
    recorded choice is the best of its recorded top-k; what was refused is not drawn again.
    """
    last = step.path[-1] if step.path and step.bonus is not None else None
    below = step.tree.children[last] if last is not None else ()
    if step.rule in (*REJECTION, BLOCK):
        yield from _drawn_again(step, below)
    if step.rule not in FOLLOWS_THE_TARGET:
        return
    if step.rule == GREEDY and not before.processed and "choice" not in step.missing:
        yield from _not_best(step)
    for node in step.accepted:
        parent = int(step.tree.parent[node])
        chosen = step.root_choice if parent < 0 else step.nodes[parent].target_choice
        if chosen not in (None, UNKNOWN, int(step.tree.token[node])):
            sentence = (
                f"{name(step, node)} was accepted, but the target chose {word(step, chosen)}."
            )
            yield Contradiction(node, sentence)
    for node in below:
        chosen = step.nodes[step.path[-1]].target_choice
        if int(step.tree.token[node]) == chosen:
            sentence = f"{name(step, node)} was rejected, but it is the target's choice."
            yield Contradiction(node, sentence, text_is_right=chosen == step.bonus)


def _drawn_again(step: Step, refused: tuple[int, ...]) -> Iterator[Contradiction]:
    """The pass's own token is one that it refused."""
    for node in refused:
        if int(step.tree.token[node]) == step.bonus:
            sentence = (
                f"{name(step, node)} was refused, and then drawn as the pass's own token, where the "
                "residual has no mass: is the target's distribution drawn from again?"
            )
            yield Contradiction(node, sentence)


def _not_best(step: Step) -> Iterator[Contradiction]:
    for node in step.nodes:
        if len(node.target_top) < 2 or node.target_choice == UNKNOWN:
            continue
        best, most = node.target_top[0]
        chosen = dict(node.target_top).get(node.target_choice, 0.0)
        if chosen < most * (1 - NEARLY):
            which = f"the choice {word(step, node.target_choice)}"
            sentence = (
                f"{name(step, node.index)} has {which}, but its best token is {word(step, best)}."
            )
            yield Contradiction(node.index, sentence)


def answer(step: Step, _: Before) -> Iterator[Contradiction]:
    """A recorded answer is a number."""
    for node in step.not_numbers:
        sentence = (
            f"The answer of {name(step, node)} is not a number: often the row saw nothing, because its "
            "row of the mask was empty."
        )
        yield Contradiction(node, sentence)


def commit(step: Step, before: Before) -> Iterator[Contradiction]:
    """The committed tokens are those of the path, then the target's choice after it."""
    expected = [int(step.tree.token[node]) for node in step.accepted]
    last = step.path[-1] if step.path else None
    chosen = step.root_choice if last is None else step.nodes[last].target_choice
    if step.bonus is not None:
        expected.append(step.bonus)
        if chosen not in (step.bonus, UNKNOWN) and step.rule != RECORDED:
            sentence = (
                f"{word(step, step.bonus)} was committed after the path, but the target chose "
            )
            sentence += f"{word(step, chosen)} there"
            others = [node.index for node in step.nodes if node.target_choice == step.bonus]
            if others:
                sentence += f"; it is the choice after {name(step, others[-1])}"
            yield Contradiction(last, f"{sentence}.")
    elif not before.last:
        sentence = "No token of the target's own was committed after the accepted path."
        yield Contradiction(last, sentence, text_is_right=True)
    if list(step.committed) != expected:
        given = ", ".join([word(step, token) for token in step.committed])
        path = ", ".join([word(step, token) for token in expected])
        sentence = f"{given} were committed, but the accepted path gives {path}."
        yield Contradiction(None, sentence)


def text(step: Step, before: Before) -> Iterator[Contradiction]:
    """The root is the newest token, and the cache holds all before it."""
    verified = 0 not in step.drafted
    held = len(before.text) - verified
    root = int(step.tree.token[0])
    if step.prefix_length != held:
        sentence = (
            f"The cache has {step.prefix_length} entries, but the text before the root has {held}."
        )
        yield Contradiction(0, sentence)
    elif verified and root != before.text[-1]:
        newest = word(step, before.text[-1])
        yield Contradiction(0, f"The root is {word(step, root)}, but the newest token is {newest}.")


def end(step: Step, before: Before) -> Iterator[Contradiction]:
    """Nothing is committed beyond the token limit or after an end-of-text token."""
    if len(step.committed) > before.room:
        room = max(before.room, 0)
        sentence = (
            f"{len(step.committed)} tokens were committed, but only {room} more were allowed."
        )
        yield Contradiction(None, sentence)
    trimmed = before.last and step.note == RECORDED  # the engine may cut the text later
    inside = () if trimmed else step.committed[:-1]
    ended = [token for token in (before.text[-1], *inside) if token in before.eos_ids]
    if ended:
        sentence = (
            f"The text went on after the end-of-text token {ended[0]}: if the engine was asked to, write "
            "ignore_eos in the header."
        )
        yield Contradiction(None, sentence)


DETECTORS: Mapping[str, Callable[[Step, Before], Iterator[Contradiction]]] = {
    detector.__name__: detector
    for detector in (position, mask, prefix, slot, path, choice, answer, commit, text, end)
}
"""By the kind of their findings."""
FAULTS = {"mask": "sibling visible", "slot": "phantom KV rows"}
"""The names in `clinic.FAULTS` whose signature a kind is."""


def contradictions(trace: Trace, eos_ids: frozenset[int]) -> list[Finding]:
    """Contradictions in the record: one finding for each kind of the first wrong iteration, with the
    number of rows there and of further iterations.

    Args:
        eos_ids: what ends a text, if the record does not say it.
    """
    recorded = str(trace.models.get("eos_ids") or "").split()
    first = trace.tokens_at(0)
    before = Before(
        text=(*trace.prompt_ids, *first),
        room=int(trace.settings.get("max_new_tokens") or 1 << 30) - len(first),
        eos_ids=frozenset(map(int, recorded)) or eos_ids,
        offset=position_offset(trace),
        processed=bool(trace.models.get("processed")),
    )
    if not trace.settings.get("stop_at_eos", True):
        before = replace(before, eos_ids=frozenset())
    wrong: dict[str, list[tuple[Step, list[Contradiction]]]] = {}
    for step in trace.steps:
        before = replace(before, last=step.index == len(trace.steps) - 1)
        for kind, detector in DETECTORS.items():
            problems = [*detector(step, before)]
            if problems:
                wrong.setdefault(kind, []).append((step, problems))
        room = before.room - len(step.committed)
        before = replace(before, text=before.text + step.committed, room=room)
    earliest = min([steps[0][0].index for steps in wrong.values()], default=0)
    findings = []
    for kind, steps in wrong.items():
        step, problems = steps[0]
        if step.index > earliest:
            continue  # often a consequence
        sentence = problems[0].sentence.removesuffix(".")
        if len(problems) > 1:
            sentence += f"; {len(problems) - 1} more in this iteration"
        if len(steps) > 1:
            sentence += f"; and in {len(steps) - 1} more iterations"
        right = True
        for _, others in steps:
            right = right and all(problem.text_is_right for problem in others)
        finding = Finding(
            step.index,
            problems[0].node,
            kind,
            f"{sentence}.",
            FAULTS.get(kind, ""),
            len(problems),
            right,
        )
        findings.append(finding)
    return findings


def position_offset(trace: Trace) -> int:
    """The offset of every position: from the header, else the one that all rows share."""
    if given := int(trace.models.get("position_offset") or 0):
        return given
    offsets = set()
    for step in trace.steps:
        for place, depth in zip(step.position, step.tree.depth.tolist(), strict=False):
            offsets.add(place - step.prefix_length - depth)
    return offsets.pop() if len(offsets) == 1 else 0
