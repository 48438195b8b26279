"""Contradictions in the record of a run, found without a model.

A detector reads one Step, and what the passes before it add up to. It knows nothing of the engine that
decoded: it takes the tokens, parents, mask, slots, choices, accepted and committed tokens of one
verification pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from speclab.display import counted
from speclab.pair import ModelPair
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

SEES_NOT_ITSELF = "{0} does not see itself."
SEES_NOT_ABOVE = "{0} does not see {1}, its ancestor."
SEES_SIBLING = "{0} sees {1}, its sibling."
SEES_OTHER = "{0} sees {1}, which is not its ancestor."
TOO_LONG = "The target's cache has {} entries for {} committed tokens."
LEFT_OVER = "The target's cache has {} entries for {} committed tokens: the row of {} was kept."
NOT_CHOSEN = "{0} was committed after the path, but the target chose {1} there."
CHOSEN_ELSEWHERE = (
    "{0} was committed after the path, but the target chose {1} there; it is the choice after {2}."
)

OF_LINK = (
    "A link does not carry the tokens before its iterations, so answers are not compared and only its "
    "record is checked: save the run itself (trace.save) to check it whole."
)


@dataclass(frozen=True)
class Contradiction:
    """What is wrong at a node, None for the whole step; `text_is_right`: it only costs accepted tokens."""

    node: int | None
    sentence: str
    text_is_right: bool = False


@dataclass
class Before:
    """What comes before a step: the `text` with its prompt, how many more tokens may be committed.

    `eos_ids`: what ends a text. `offset`: of all positions. `processed`: choices were made after
    logits processors, and top-k before. `last`: no pass comes after this one.
    """

    text: list[int]
    room: int
    eos_ids: frozenset[int]
    offset: int
    processed: bool
    last: bool = False


def name(step: Step, node: int) -> str:
    """`node 2 ' the'`."""
    token = word(step, int(step.tree.token[node]))
    if step.rows:
        return f"node {node} (row {step.rows[node]} of the file) {token}"
    return f"node {node} {token}"


def word(step: Step, token: int | None) -> str:
    """The text of a token, in quotes; the token's number if it has none."""
    if token is None or token == UNKNOWN:
        return "an unknown token"
    return repr(step.texts.get(token, str(token)))


def words(step: Step, tokens: Sequence[int]) -> str:
    return ", ".join([word(step, token) for token in tokens])


def position(step: Step, before: Before) -> Iterator[Contradiction]:
    """A row's position is the prefix's length and its depth."""
    for row, given in enumerate(step.position):
        own = step.prefix_length + int(step.tree.depth[row]) + before.offset
        if given != own:
            yield Contradiction(row, f"{name(step, row)} has position {given}, expected {own}.")


def mask(step: Step, _: Before) -> Iterator[Contradiction]:
    """A row sees itself and its ancestors, and nothing else of the tree."""
    expected = step.tree.ancestor_mask()
    parent = step.tree.parent
    for row, column in np.argwhere(step.mask != expected).tolist():
        says = SEES_OTHER
        if row == column:
            says = SEES_NOT_ITSELF
        elif expected[row, column]:
            says = SEES_NOT_ABOVE
        elif parent[row] == parent[column]:
            says = SEES_SIBLING
        yield Contradiction(row, says.format(name(step, row), name(step, column)))


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
    slots: list[int] = []
    for node in step.nodes:
        if node.kv_slot in slots:
            sentence = (
                f"{name(step, node.index)} was written to slot {node.kv_slot}, as another row was."
            )
            yield Contradiction(node.index, sentence)
        slots.append(node.kv_slot)
    if not step.caches:
        return
    cache = step.caches[0]
    path_slots = [slots[node] for node in step.path[: len(step.committed)]]
    if cache.after > cache.committed:
        for row, kv_slot in enumerate(slots):
            if kv_slot in cache.kept and kv_slot not in path_slots:
                kept = LEFT_OVER.format(cache.after, cache.committed, name(step, row))
                yield Contradiction(row, kept)
                return
        yield Contradiction(None, TOO_LONG.format(cache.after, cache.committed))
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


def _choice_after(step: Step, node: int) -> int | None:
    """The target's choice after a node, or before a drafted root (-1)."""
    if node < 0:
        return step.root_choice
    return step.nodes[node].target_choice


def choice(step: Step, before: Before) -> Iterator[Contradiction]:
    """An accepted child carries the target's choice, and no child that carries it is rejected; a
    recorded choice is the best of its recorded top-k; what was refused is not drawn again.
    """
    refused: tuple[int, ...] = ()
    if step.path and step.bonus is not None:
        refused = step.tree.children[step.path[-1]]
    if step.rule in (*REJECTION, BLOCK):
        yield from _drawn_again(step, refused)
    if step.rule not in FOLLOWS_THE_TARGET:
        return
    if step.rule == GREEDY and not before.processed and "choice" not in step.missing:
        yield from _not_best(step)
    for node in step.accepted:
        chosen = _choice_after(step, int(step.tree.parent[node]))
        if chosen not in (None, UNKNOWN, int(step.tree.token[node])):
            sentence = (
                f"{name(step, node)} was accepted, but the target chose {word(step, chosen)}."
            )
            yield Contradiction(node, sentence)
    for node in refused:
        chosen = _choice_after(step, step.path[-1])
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
    """The recorded choice is less probable than the best of the recorded top-k."""
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
    expected = step.tree.token[list(step.accepted)].tolist()
    last = step.path[-1] if step.path else None
    if step.bonus is not None:
        expected.append(step.bonus)
        chosen = _choice_after(step, -1 if last is None else last)
        if chosen not in (step.bonus, UNKNOWN) and step.rule != RECORDED:
            yield Contradiction(last, _not_chosen(step, step.bonus, chosen))
    elif not before.last:
        sentence = "No token of the target's own was committed after the accepted path."
        yield Contradiction(last, sentence, text_is_right=True)
    if list(step.committed) != expected:
        given = words(step, step.committed)
        sentence = f"{given} were committed, but the accepted path gives {words(step, expected)}."
        yield Contradiction(None, sentence)


def _not_chosen(step: Step, bonus: int, chosen: int | None) -> str:
    """A token was committed for another one; the last row that chose it, if any, is named."""
    says = NOT_CHOSEN
    elsewhere = ""
    for node in step.nodes:
        if node.target_choice == bonus:
            says = CHOSEN_ELSEWHERE
            elsewhere = name(step, node.index)
    return says.format(word(step, bonus), word(step, chosen), elsewhere)


def text(step: Step, before: Before) -> Iterator[Contradiction]:
    """The root is the newest token, and the cache holds all before it."""
    verified = 0 not in step.drafted
    held = len(before.text) - verified
    root = int(step.tree.token[0])
    if step.prefix_length != held:
        entries = counted(step.prefix_length, "entry", "entries")
        sentence = f"The cache has {entries}, but the text before the root has {held}."
        yield Contradiction(0, sentence)
    elif verified and root != before.text[-1]:
        newest = word(step, before.text[-1])
        yield Contradiction(0, f"The root is {word(step, root)}, but the newest token is {newest}.")


def end(step: Step, before: Before) -> Iterator[Contradiction]:
    """Nothing is committed beyond the token limit or after an end-of-text token."""
    if len(step.committed) > before.room:
        room = max(before.room, 0)
        sentence = f"The pass committed {counted(len(step.committed), 'token')}, but only {room} more were allowed."
        yield Contradiction(None, sentence)
    followed = before.text[-1:]
    if not before.last or step.note != RECORDED:  # the engine may cut the text later
        followed += step.committed[:-1]
    for token in followed:
        if token in before.eos_ids:
            sentence = (
                f"The text went on after the end-of-text token {token}: if the engine was asked to, write "
                "ignore_eos in the header."
            )
            yield Contradiction(None, sentence)
            return


DETECTORS: Mapping[str, Callable[[Step, Before], Iterator[Contradiction]]] = {
    detector.__name__: detector
    for detector in (position, mask, prefix, slot, path, choice, answer, commit, text, end)
}
"""By the kind of their findings."""
FAULTS = {"mask": "sibling visible", "slot": "phantom KV rows"}
"""The names in `clinic.FAULTS` whose signature a kind is."""


def contradictions(trace: Trace, pair: ModelPair | None) -> list[Finding]:
    """Contradictions in the record: one finding for each kind of the first wrong iteration, with the
    number of rows there and of further iterations.

    Args:
        pair: knows what ends a text, if the record does not say it.
    """
    before = _before(trace, pair)
    found: dict[str, list[Finding]] = {}
    for step in trace.steps:
        before.last = step is trace.steps[-1]
        for kind, detector in DETECTORS.items():
            problems = list(detector(step, before))
            if problems:
                found.setdefault(kind, []).append(_finding(step, kind, problems))
        before.text += step.committed
        before.room -= len(step.committed)
    earliest = min([every[0].iteration for every in found.values()], default=0)
    findings = []
    for first, *others in found.values():
        if first.iteration > earliest:
            continue  # often a consequence
        for other in others:
            right = first.text_is_right and other.text_is_right
            first = replace(first, text_is_right=right)
        if others:
            sentence = f"{first.sentence.removesuffix('.')}; and in {counted(len(others), 'more iteration')}."
            first = replace(first, sentence=sentence)
        findings.append(first)
    return findings


def _finding(step: Step, kind: str, problems: Sequence[Contradiction]) -> Finding:
    """Of one iteration: the first contradiction, and how many more there are."""
    first = problems[0]
    sentence = first.sentence
    if len(problems) > 1:
        sentence = f"{sentence.removesuffix('.')}; {len(problems) - 1} more in this iteration."
    right = all(problem.text_is_right for problem in problems)
    fault = FAULTS.get(kind, "")
    return Finding(step.index, first.node, kind, sentence, fault, len(problems), right)


def _before(trace: Trace, pair: ModelPair | None) -> Before:
    """What comes before the first step."""
    text = list(trace.prompt_ids)
    if from_link(trace):
        # as long as the first step says: only what follows can be checked
        text = [UNKNOWN] * trace.steps[0].prefix_length
        pair = None  # its ids may be others
    room = int(trace.settings.get("max_new_tokens") or 1 << 30)
    if trace.first_token is not None:
        text.append(trace.first_token)
        room -= 1
    eos_ids: frozenset[int] = frozenset()
    if trace.settings.get("stop_at_eos", True):
        if recorded := str(trace.models.get("eos_ids") or ""):
            eos_ids = frozenset(map(int, recorded.split()))
        elif pair is not None:
            eos_ids = pair.eos_ids
    return Before(
        text=text,
        room=room,
        eos_ids=eos_ids,
        offset=position_offset(trace),
        processed=bool(trace.models.get("processed")),
    )


def from_link(trace: Trace) -> bool:
    """Whether the run was opened from a link, which has the text before it, but not its tokens."""
    return "link" in trace.models


def position_offset(trace: Trace) -> int:
    """The offset of every position: from the header, else the one that all rows share."""
    if given := int(trace.models.get("position_offset") or 0):
        return given
    offsets = set()
    for step in trace.steps:
        for place, depth in zip(step.position, step.tree.depth.tolist(), strict=False):
            offsets.add(place - step.prefix_length - depth)
    return offsets.pop() if len(offsets) == 1 else 0


def unusual(trace: Trace) -> list[str]:
    """What is unusual in a record and no fault."""
    notes = []
    if from_link(trace):
        notes.append(OF_LINK)
    if given := trace.models.get("note"):
        notes.append(str(given))
    if offset := position_offset(trace):
        notes.append(f"All positions are {offset:+d} off the text's, from the first pass on.")
    if trace.models.get("processed"):
        notes.append("Choices were made after logits processors, so answers are compared by top-k.")
    return notes
