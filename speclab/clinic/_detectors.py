"""Detectors: each reads one Step and yields what contradicts the rules, without a model.

A detector knows nothing of the engine that decoded: it takes the tokens, parents, mask, slots,
choices, accepted and committed tokens of one verification pass, and what the passes before it add
up to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from speclab.trace.records import UNKNOWN, Finding, Step, Trace

FOLLOWS_THE_TARGET = {"greedy", "sample and match"}
"""Acceptance rules under which exactly the child with the target's choice is accepted."""
BLOCK = "a block of draws"
REJECTION = ("independent draws", "draws without replacement")
"""With the block rule, those that draw from what a refusal leaves, where the refused token has no mass."""
GREEDY = "greedy"
NEARLY = 1e-3
"""Share by which the choice's probability may be below the best: equal in half precision."""
RECORDED = "recorded"
"""The note of another decoder's steps, and their rule if they were sampled without naming one."""
Fault = tuple[int | None, str] | tuple[int | None, str, bool]
"""A node, None for the whole step; what is wrong, a sentence; and True if the text stays right."""


@dataclass(frozen=True, slots=True)
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
    token = int(step.tree.token[node])
    row = f" (row {step.rows[node]} of the file)" if step.rows else ""
    return f"node {node}{row} {step.texts.get(token, str(token))!r}"


def mask(step: Step, _: Before) -> Iterator[Fault]:
    """A row sees itself and its ancestors, and nothing else of the tree."""
    expected = step.tree.ancestor_mask()
    for row, column in np.argwhere(step.mask != expected).tolist():
        if expected[row, column]:
            kin = "itself" if row == column else f"{name(step, column)}, its ancestor"
            yield row, f"{name(step, row)} does not see {kin}."
        else:
            siblings = step.tree.parent[row] == step.tree.parent[column]
            kin = "its sibling" if siblings else "which is not its ancestor"
            yield row, f"{name(step, row)} sees {name(step, column)}, {kin}."


def position(step: Step, before: Before) -> Iterator[Fault]:
    """A row's position is the prefix's length and its depth."""
    for row, given in enumerate(step.position):
        own = step.prefix_length + int(step.tree.depth[row]) + before.offset
        if given != own:
            yield row, f"{name(step, row)} has position {given}, expected {own}."


def prefix(step: Step, _: Before) -> Iterator[Fault]:
    """Rows at one position see as many entries of the prefix, and deeper ones not more (a window may hide some)."""
    for row, first, last in step.hidden_prefix:
        if first:  # a window hides the first entries
            yield row, f"{name(step, row)} does not see entries {first} to {last} of the prefix."
    most = step.prefix_length
    by_depth: dict[int, int] = {}
    for row, (depth, seen) in enumerate(
        zip(step.tree.depth.tolist(), step.prefix_seen, strict=True)
    ):
        most = by_depth.get(depth - 1, most)
        expected = by_depth.setdefault(depth, min(seen, most))
        if seen != expected:
            yield (
                row,
                f"{name(step, row)} sees {seen} prefix entries, expected {expected}.",
            )


def slot(step: Step, _: Before) -> Iterator[Fault]:
    """Each row has a slot of its own; the rows of the path are kept, and no others."""
    slots = [node.kv_slot for node in step.nodes]
    for row, kv_slot in enumerate(slots):
        if kv_slot in slots[:row]:
            yield row, f"{name(step, row)} was written to slot {kv_slot}, as another row was."
    if not step.caches:
        return
    cache = step.caches[0]
    kept = [slots[node] for node in step.path[: len(step.committed)]]
    if cache.after > cache.committed:
        extra = [row for row, own in enumerate(slots) if own in cache.kept and own not in kept]
        which = f": the row of {name(step, extra[0])} was kept" if extra else ""
        entries = f"{cache.after} entries for {cache.committed} committed tokens"
        yield extra[0] if extra else None, f"The target's cache has {entries}{which}."
    elif cache.kept and "slot" not in step.missing and list(cache.kept) != kept:
        yield None, f"Slots {list(cache.kept)} were kept, but the accepted path is in {kept}."


def path(step: Step, _: Before) -> Iterator[Fault]:
    """The accepted nodes are a path from the root."""
    above = -1 if 0 in step.drafted else 0
    for node in step.accepted:
        if step.tree.parent[node] != above:
            yield (
                node,
                f"{name(step, node)} was accepted after node {above}, which is not its parent.",
            )
        above = node


def choice(step: Step, before: Before) -> Iterator[Fault]:
    """An accepted child carries the target's choice, and no child that carries it is rejected; a
    recorded choice is the best of its recorded top-k.
    """
    if step.rule in (*REJECTION, BLOCK):
        yield from _drawn_again(step)
    if step.rule not in FOLLOWS_THE_TARGET:
        return
    if step.rule == GREEDY and not before.processed and "choice" not in step.missing:
        yield from _not_best(step)
    for node in step.accepted:
        parent = int(step.tree.parent[node])
        chosen = step.root_choice if parent < 0 else step.nodes[parent].target_choice
        if chosen not in (None, UNKNOWN, int(step.tree.token[node])):
            yield (
                node,
                f"{name(step, node)} was accepted, but the target chose token {chosen} there.",
            )
    last = step.path[-1] if step.path else -1
    for node in step.tree.children[last] if last >= 0 and step.bonus is not None else ():
        if int(step.tree.token[node]) == step.nodes[last].target_choice:
            sentence = f"{name(step, node)} was rejected, but it is the target's choice."
            yield node, sentence, step.nodes[last].target_choice == step.bonus


def _drawn_again(step: Step) -> Iterator[Fault]:
    """The pass's own token is one that it refused."""
    end = step.path[-1:] if step.bonus is not None else ()
    for node in (child for last in end for child in step.tree.children[last]):
        if int(step.tree.token[node]) == step.bonus:
            yield node, f"{name(step, node)} was refused, and then drawn as the pass's own token."


def _not_best(step: Step) -> Iterator[Fault]:
    for node in step.nodes:
        if len(node.target_top) < 2 or node.target_choice == UNKNOWN:
            continue
        best, most = node.target_top[0]
        chosen = dict(node.target_top).get(node.target_choice, 0.0)
        if chosen < most * (1 - NEARLY):
            yield (
                node.index,
                f"{name(step, node.index)} has the choice {node.target_choice}, but the best token of "
                f"its top-k is {best}.",
            )


def answer(step: Step, _: Before) -> Iterator[Fault]:
    """A recorded answer is a number."""
    for node in step.not_numbers:
        yield (
            node,
            f"The answer of {name(step, node)} is not a number: often the row saw nothing, because its "
            "row of the mask was empty.",
        )


def commit(step: Step, before: Before) -> Iterator[Fault]:
    """The committed tokens are those of the path, then the target's choice after it."""
    expected = [int(step.tree.token[node]) for node in step.accepted]
    last = step.path[-1] if step.path else None
    chosen = step.root_choice if last is None else step.nodes[last].target_choice
    if step.bonus is not None:
        expected.append(step.bonus)
        if step.bonus != chosen and step.rule != RECORDED:
            yield (
                last,
                f"Token {step.bonus} was committed after the path, but the target chose {chosen}.",
            )
    elif not before.last:
        yield last, "No token of the target's own was committed after the accepted path.", True
    if list(step.committed) != expected:
        yield (
            None,
            f"Tokens {list(step.committed)} were committed, but the accepted path gives {expected}.",
        )


def text(step: Step, before: Before) -> Iterator[Fault]:
    """The root is the newest token, and the cache holds all before it."""
    verified = 0 not in step.drafted
    held = len(before.text) - verified
    if step.prefix_length != held:
        yield (
            0,
            f"The cache has {step.prefix_length} entries, but the text before the root has {held} tokens.",
        )
    elif verified and int(step.tree.token[0]) != before.text[-1]:
        yield (
            0,
            f"The root is token {int(step.tree.token[0])}, but the newest token is {before.text[-1]}.",
        )


def end(step: Step, before: Before) -> Iterator[Fault]:
    """Nothing is committed beyond the token limit or after an end-of-text token."""
    if len(step.committed) > before.room:
        yield (
            None,
            f"{len(step.committed)} tokens were committed, but only {max(before.room, 0)} more were allowed.",
        )
    trimmed = before.last and step.note == RECORDED  # the engine may cut the text later
    inside = () if trimmed else step.committed[:-1]
    ended = [token for token in (before.text[-1], *inside) if token in before.eos_ids]
    if ended:
        yield None, f"The text went on after the end-of-text token {ended[0]}."


DETECTORS: Mapping[str, Callable[[Step, Before], Iterator[Fault]]] = {
    detector.__name__: detector
    for detector in (position, mask, prefix, slot, path, choice, answer, commit, text, end)
}
"""By the kind of their findings."""


def contradictions(trace: Trace, eos_ids: frozenset[int]) -> list[Finding]:
    """Contradictions in the record, of the kinds found in the first wrong iteration; one for each kind
    and iteration.

    Args:
        eos_ids: what ends a text, if the record does not say it.
    """
    if given := str(trace.models.get("eos_ids") or ""):
        eos_ids = frozenset(map(int, given.split()))
    first = trace.tokens_at(0)
    before = Before(
        text=(*trace.prompt_ids, *first),
        room=int(trace.settings.get("max_new_tokens") or 1 << 30) - len(first),
        eos_ids=eos_ids if trace.settings.get("stop_at_eos", True) else frozenset(),
        offset=position_offset(trace),
        processed=bool(trace.models.get("processed")),
    )
    names = {"mask": "sibling visible", "slot": "phantom KV rows"}
    findings: list[Finding] = []
    for step in trace.steps:
        before = replace(before, last=step.index == len(trace.steps) - 1)
        for kind, detector in DETECTORS.items():
            faults = [*detector(step, before)]
            for node, sentence, *right in faults[:1]:
                if faults[1:]:
                    sentence = f"{sentence[:-1]}; {len(faults) - 1} more in this iteration."
                about = (kind, sentence, names.get(kind, ""), len(faults), right == [True])
                findings.append(Finding(step.index, node, *about))
        room = before.room - len(step.committed)
        before = replace(before, text=before.text + step.committed, room=room)
    kinds = {finding.kind for finding in findings if finding.iteration == findings[0].iteration}
    return [finding for finding in findings if finding.kind in kinds]


def position_offset(trace: Trace) -> int:
    """The offset of every position: from the header, else the one that all rows share."""
    if given := int(trace.models.get("position_offset") or 0):
        return given
    offsets = {
        place - step.prefix_length - depth
        for step in trace.steps
        for place, depth in zip(step.position, step.tree.depth.tolist(), strict=False)
    }
    return offsets.pop() if len(offsets) == 1 else 0
