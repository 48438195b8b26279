"""Two iterations side by side: their difference in words, from their records alone, then both trees on one scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from speclab.trace.records import Step, Trace
from speclab.views.draft_tree import small_tree_specs
from speclab.views.explain import plural, summary
from speclab.views.figures import Drawing, Part, Spec, abreast
from speclab.views.markup import label, labelled, quoted, spoken, table, tag, written
from speclab.views.networks import graph

MOST = 12
"""Settings listed at most; where a whole strategy is another, its name says enough."""
SAME = "Both drafted the same tree."
Names = tuple[str, str]
NAMES = "this run", "the other"
"""What two runs are called in sentences."""


def runs_words(one: Trace, other: Trace, cursor: int) -> tuple[str, ...]:
    """Sentences on `one` ("this run") and `other` after `cursor` iterations of each: figures, texts, then trees."""
    if not cursor:
        return ("Before the first iteration: nothing is drafted yet.",)
    if cursor > len(other.steps):
        return (f"The other run has {plural(len(other.steps), 'iteration')}: switch to it and Step to go on there.",)
    mine, theirs = one.steps[cursor - 1], other.steps[cursor - 1]
    figures = figures_words(mine, theirs)
    if one.prompt_ids != other.prompt_ids:
        return figures, "The prompts differ: texts and trees do not compare."
    so_far = texts_words(one, other, cursor)
    before = one.token_ids(cursor - 1), other.token_ids(cursor - 1)
    if before[0] == before[1]:
        return figures, so_far, *trees_words(mine, theirs)
    places = f"this after token {len(before[0])}, the other after token {len(before[1])}"
    return figures, so_far, f"The two trees stand at different places of the text: {places}."


def steps_words(one: Step, other: Step, names: Names = NAMES) -> tuple[str, ...]:
    """Sentences on two iterations: figures, and trees where both have the same root at the same place."""
    same = one.prefix_length == other.prefix_length and one.tree.token[0] == other.tree.token[0]
    place = f"The two trees stand at different places of the text: behind {one.prefix_length} and {other.prefix_length}"
    return figures_words(one, other), *(trees_words(one, other, names) if same else (f"{place} tokens.",))


def figures_words(one: Step, other: Step) -> str:
    """One sentence, such as: Nodes drafted: 14 against 24; accepted: 3 against 4; tokens committed: 4 each."""
    found = (
        ("Nodes drafted", one.counts.drafted, other.counts.drafted),
        ("accepted", len(one.accepted), len(other.accepted)),
        ("tokens committed", len(one.committed), len(other.committed)),
    )
    return "; ".join([f"{name}: {a} {'each' if a == b else f'against {b}'}" for name, a, b in found]) + "."


def texts_words(one: Trace, other: Trace, cursor: int) -> str:
    """How far the two texts are the same, generated tokens counted from 1."""
    mine, theirs = one.token_ids(cursor), other.token_ids(cursor)
    same = common(mine, theirs)
    if mine == theirs:
        return f"Same text so far: {plural(same, 'token')}."
    if same == min(len(mine), len(theirs)):
        ahead = "this run" if len(mine) > same else "the other"
        return f"Same text up to token {same}; {ahead} is {plural(abs(len(mine) - len(theirs)), 'token')} ahead."
    texts = {**one.texts, **other.texts}
    up_to = f"Same text up to token {same}; then" if same else "The texts differ from the first token:"
    return f"{up_to} {quoted(mine[same], texts)} against {quoted(theirs[same], texts)}."


def texts_table(one: Trace, other: Beside, cursor: int) -> str:
    """Both texts token by token around the place where they part, one below the other; nothing where they do not."""
    runs = {"this run": one.token_ids(cursor), other.name: other.trace.token_ids(cursor)}
    same, texts = common(*runs.values()), {**one.texts, **other.trace.texts}
    if same == min(map(len, runs.values())) or one.prompt_ids != other.trace.prompt_ids:
        return ""
    places = range(max(same - 4, 0), same + 8)
    rows = [(name, *(label(ids[i], texts, 12) if i < len(ids) else "" for i in places)) for name, ids in runs.items()]
    head = ["token", *(f"{i + 1} ≠" if i == same else str(i + 1) for i in places)]
    return table("The texts where they part", head, rows)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def trees_words(one: Step, other: Step, names: Names = NAMES) -> tuple[str, ...]:
    """The first node that one tree expanded and the other did not, and the first one with other children; why."""
    mine, theirs = _nodes(one), _nodes(other)
    if mine.keys() == theirs.keys():
        return (SAME,)
    shared = [(node, theirs[path]) for path, node in mine.items() if path in theirs]
    if not shared:
        return ("The trees have no node in common: their roots differ.",)
    found = (next(_grown(one, other, shared, names), ""), next(_children(one, other, shared, names), ""))
    return tuple([sentence[0].upper() + sentence[1:] for sentence in found if sentence])


def _nodes(step: Step) -> dict[tuple[int, ...], int]:
    """Every path of tokens from the root, and the node where it ends; of twins the first."""
    found: dict[tuple[int, ...], int] = {}
    for node in range(len(step.tree)):
        found.setdefault(tuple(step.tree.token[list(step.tree.path(node))].tolist()), node)
    return found


def _grown(one: Step, other: Step, shared: list[tuple[int, int]], names: Names) -> Iterator[str]:
    for mine, theirs in shared:
        this = _expanded(one, mine)
        if this == _expanded(other, theirs):
            continue
        (who, whose), (left, at) = (names, (other, theirs)) if this else (names[::-1], (one, mine))
        children = one.tree.children[mine] if this else other.tree.children[theirs]
        into = f" into {len(children)}" if children else ", though none of its children stayed"
        stop = next((f": {event.reason}" for event in left.events if event.kind == "stop" and event.node == at), "")
        yield f"{who} expanded {_name(one, mine)}{into}, where {whose} stopped{stop}."


def _expanded(step: Step, node: int) -> bool:
    return bool(step.tree.children[node]) or any(e.kind == "expand" and e.node == node for e in step.events)


def _children(one: Step, other: Step, shared: list[tuple[int, int]], names: Names) -> Iterator[str]:
    """What one drafted after a node that both expanded, and the other did not; first of the other tree."""
    for mine, theirs in shared:
        if not (_expanded(one, mine) and _expanded(other, theirs)):
            continue
        sides = (names[0], one, mine), (names[1], other, theirs)
        for (whose, less, there), (who, more, at) in (sides, sides[::-1]):
            had, found = (dict.fromkeys(int(s.tree.token[n]) for n in s.tree.children[node])
                          for s, node in ((less, there), (more, at)))  # fmt: skip
            extra = [token for token in found if token not in had]
            if extra:
                rest = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
                drafted = f"{quoted(extra[0], more.texts)}{rest} after {_name(more, at)}"
                yield f"{who} drafted {drafted}; {whose} {why_absent(less, there, extra[0])}."


def _name(step: Step, node: int) -> str:
    return quoted(int(step.tree.token[node]), step.texts)


def why_absent(step: Step, node: int, token: int) -> str:
    """Why a token is not among a node's children: pruned, beyond the branches asked for, or never looked at."""
    own = [event for event in step.events if event.node == node]
    pruned = [event for event in own if event.kind == "prune"]
    for event in pruned:
        if event.values.get("token") == token:
            return f"pruned it: {event.reason}"
    for event in own:
        asked, added = event.values.get("branches"), event.values.get("added")
        if event.kind != "expand" or not isinstance(asked, int):
            continue
        if added is not None:
            return f"had room for {added} of {asked}" if added != asked else f"asked for {asked}: {event.reason}"
        # Grown best first: all it looked at were candidates. Of those dropped behind a node the record names the first.
        record, least = step.nodes[node], [event.values.get("least_kept") for event in pruned]
        prob = dict(record.draft_top[:asked]).get(token)
        if prob is None or not least:
            return f"looked at its {plural(asked, 'most probable token')} alone"
        path = f"path probability {record.path_prob * prob:.2g}"
        return f"pruned it: {path}, and the nodes kept have {least[0]:.2g} and more"
    return "did not"


@dataclass(frozen=True, slots=True)
class Beside:
    """A run kept beside the one shown, to follow its cursor. `number`: of the fork; `name`: what it is called."""

    number: int
    name: str
    trace: Trace


def beside_drawing(trace: Trace, cursor: int, beside: Beside | None, pinned: Step | None) -> Drawing:
    """Whatever is kept beside the iteration at `cursor`: a run, an iteration, both; "" where nothing is."""
    parts: list[Part] = []
    if beside is not None:
        words = runs_words(trace, beside.trace, cursor)
        parts.append(_said(f"Beside {beside.name}", words) + texts_table(trace, beside, cursor))
        if 0 < cursor <= len(beside.trace.steps) and SAME not in words:  # else the stage shows it
            steps = trace.steps[cursor - 1], beside.trace.steps[cursor - 1]
            parts.append(trees_spec(steps, ("This run", beside.name), 0))
    if pinned is not None:
        step = trace.steps[cursor - 1] if cursor else pinned
        parts += pinned_drawing(step, pinned)
    return parts or ""


def pinned_drawing(step: Step, pinned: Step) -> list[Part]:
    """The iteration shown and the pinned one; the pinned one alone where they are the same."""
    name = f"Pinned: iteration {pinned.index + 1}"
    if step is pinned:
        return [trees_spec((pinned,), (name,))]
    words = _said("Beside the pinned iteration", steps_words(step, pinned, ("the tree shown", "the pinned one")))
    return [words, trees_spec((step, pinned), (f"Shown: iteration {step.index + 1}", name), 0)]


_TWICE = "as it was", "decoded anew"


def pair_facts(old: Step, new: Step) -> list[Part]:
    """One iteration decoded twice from the same text, as by a what-if: what differs, in words and as a table."""

    def text(step: Step, tokens: Iterable[int]) -> str:
        return "".join([label(token, step.texts) for token in tokens]) or "–"

    both = (old, new)
    moved = [name for name in {**old.settings, **new.settings} if old.settings.get(name) != new.settings.get(name)]
    rows = [
        *((spoken(name), *(written(name, step.settings.get(name)) for step in both)) for name in moved[:MOST]),
        ("nodes drafted", *(str(step.counts.drafted) for step in both)),
        ("accepted path", *(text(step, step.tree.token[list(step.accepted)].tolist()) for step in both)),
        ("tokens committed", *(str(len(step.committed)) for step in both)),
        ("text committed", *(text(step, step.committed) for step in both)),
    ]
    words = _said("What differs", trees_words(old, new, ("the old tree", "the new one")))
    return [words, table("The same iteration, twice", ("", *_TWICE), rows)]


def twice_drawing(old: Step, new: Step, width: float, height: float, scale: float = 1.0) -> list[Part]:
    """Both trees of an iteration decoded twice, one below the other on the same columns, in this room of pixels."""
    rows = max(3, int(height / 2 / (18 * scale)) - 3)
    said = [f"{name}: {summary(step)}" for name, step in zip(_TWICE, (old, new), strict=True)]
    drawn = small_tree_specs([graph(old), graph(new)], said, width=width, scale=scale, rows=rows, pick=1)
    names = [tag("b", name[0].upper() + name[1:], class_="sl-twice") for name in _TWICE]
    return [names[0], drawn[0], names[1], drawn[1]]


def trees_spec(steps: Sequence[Step], names: Sequence[str], pick: int | None = None) -> Spec:
    """The trees of these iterations on the same columns, each below its name. `pick`: the one shown."""
    said = [f"{name}. {summary(step)}" for name, step in zip(names, steps, strict=True)]
    drawn = small_tree_specs([graph(step) for step in steps], said, pick=pick)
    return abreast(drawn, names, " ".join(said), meta={"name": "side-by-side"})


def _said(label: str, words: Sequence[str]) -> str:
    return tag("div", labelled(label, " ".join(words)), class_="speclab-beside-view")
