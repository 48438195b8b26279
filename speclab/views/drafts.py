"""The trees that stood for choice: side by side on one scale, with what decided between them.

Of a tree that was not verified only so much is known as the committed text tells: a token that the text goes on with
would have been accepted there as well. What lies beyond is called unknown.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from speclab.trace.records import Proposal, Step
from speclab.tree import DraftTree
from speclab.views import walk
from speclab.views.small_tree import Reading
from speclab.views.summary import plural
from speclab.views.tokens import label, quoted

if TYPE_CHECKING:
    from speclab.analysis.routing import Regret


def merged(step: Step) -> bool:
    """Whether more than one proposal was verified, as one tree."""
    return sum(one.chosen for one in step.proposals) > 1


def margin(step: Step, place: int) -> float:
    """How far a proposal's score lies above the best of the others; below it: negative."""
    others = [one.score for i, one in enumerate(step.proposals) if i != place]
    return step.proposals[place].score - max(others, default=0.0)


def reading(step: Step, place: int, regret: Regret | None = None) -> Reading:
    """What came of a proposal; of one that was not verified, what the committed tokens tell of it.

    `regret`: both trees verified, which leaves nothing unknown.
    """
    proposal = step.proposals[place]
    if proposal.chosen and not merged(step):
        return verified(step) if len(proposal.tree) == len(step.tree) else _in_part(step, proposal.tree)
    if regret is not None:
        return verified(regret.steps[place])
    tree = proposal.tree
    if step.counts.lossy:  # what such a rule takes of another tree, the text does not tell
        return Reading(("root", *("drafted" for _ in range(len(tree) - 1))), (), None)
    path = tree.follow(step.committed)
    beyond = step.committed[len(path) :]
    return Reading(_looks(tree, step.committed), path, (beyond[0], _own(tree, path)) if beyond else None)


def verified(step: Step) -> Reading:
    """What came of a tree that was verified."""
    own = None if step.bonus is None else (step.bonus, walk.own_kind(step))
    return Reading(tuple(node.verdict for node in step.nodes), step.accepted, own)


def _in_part(step: Step, tree: DraftTree) -> Reading:
    """What came of a tree of which the target verified the nodes that were worth it."""
    place = [0]
    for node in range(1, len(step.tree)):
        children = tree.children[place[int(step.tree.parent[node])]]
        place.append(next(child for child in children if tree.token[child] == step.tree.token[node]))
    looks = ["drafted"] * len(tree)
    for node, at in enumerate(place):
        looks[at] = step.nodes[node].verdict
    return Reading(tuple(looks), tuple(place[node] for node in step.accepted), verified(step).own)


def _own(tree: DraftTree, path: tuple[int, ...]) -> str:
    return "corrected" if tree.children[path[-1] if path else 0] else "bonus"


def _looks(tree: DraftTree, committed: tuple[int, ...]) -> tuple[str, ...]:
    looks = ["root"]
    for node in range(1, len(tree)):
        above, depth = looks[int(tree.parent[node])], int(tree.depth[node])
        if above in {"root", "accepted"} and depth <= len(committed):
            looks.append("accepted" if tree.token[node] == committed[depth - 1] else "rejected")
        else:
            looks.append("drafted" if above in {"root", "accepted", "drafted"} else "not reached")
    return tuple(looks)


def choice_words(step: Step) -> str:
    """Which trees there were, and which was verified, and why."""
    trees = [f"{one.name} with {_size(one)}, mean confidence {_figures(one)}" for one in step.proposals]
    root = quoted(int(step.tree.token[0]), step.texts)
    told = f"{'Two' if len(trees) == 2 else len(trees)} trees from {root}: {'; '.join(trees)}."
    if merged(step):
        return f"{told} They were verified as one, of {plural(len(step.tree) - 1, 'node')}."
    place = next(i for i, one in enumerate(step.proposals) if one.chosen)
    name, ahead = step.proposals[place].name, margin(step, place)
    why = f"by a margin of {figure(ahead)}" if ahead else "for of two equal trees the first is"
    return f"{told} {name} was verified, {why}."


def figure(value: float) -> str:
    """Three decimals, of a small one four: means of large trees are small."""
    return f"{value:.{3 if abs(value) >= 0.1 else 4}f}"


def _figures(one: Proposal) -> str:
    score = "" if abs(one.score - one.confidence) < 1e-9 else f" (compared by {figure(one.score)})"
    return f"{figure(one.confidence)}{score}"


def _size(one: Proposal) -> str:
    return plural(len(one.tree) - 1, "node")


def outcome_words(step: Step, place: int, regret: Regret | None = None) -> str:
    """What a proposal had accepted, or would have had; what is not known is called so."""
    proposal, read = step.proposals[place], reading(step, place, regret)
    name, run = proposal.name, _run(step, proposal.tree, read)
    if proposal.chosen or regret is not None:
        would = "had" if proposal.chosen and not merged(step) else "has"
        return f"{name} {would} {len(read.path)} accepted{run}.{_then(step, proposal.tree, read)}"
    if step.counts.lossy:
        return f"What typical acceptance would have taken of {name} is unknown without verifying it."
    unknown = read.looks.count("drafted")
    more = len(read.path) - len(step.accepted)
    gap = f"{abs(more)} {'more' if more > 0 else 'fewer'}" if more else "as many"
    least = "at least " if unknown else ""
    told = f"{name} would have had {least}{len(read.path)} accepted{run}: {gap}.{_then(step, proposal.tree, read)}"
    if unknown:
        told += f" What the target makes of the {plural(unknown, 'node')} beyond is unknown without verifying."
    return told


def _run(step: Step, tree: DraftTree, read: Reading) -> str:
    text = "".join(label(int(tree.token[node]), step.texts) for node in read.path)
    return f" ('{text}')" if read.path else ""


def _then(step: Step, tree: DraftTree, read: Reading) -> str:
    if read.own is None:
        return ""
    token, last = read.own[0], read.path[-1] if read.path else 0
    held = {int(tree.token[child]) for child in tree.children[last]}
    why = ", which it does not hold" if held and token not in held else ""
    return f" Then the target chose {quoted(token, step.texts)}{why}."


def sources_words(step: Step) -> str:
    """Of a merged tree: whose its nodes are, and whose the accepted ones."""
    whose = Counter(step.tree.source[1:])
    nodes = ", ".join(f"{count} of {_whose(step, name)}" for name, count in whose.items())
    runs = [
        f"{plural(len(list(run)), 'token')} of {_whose(step, name)}"
        for name, run in groupby(step.tree.source[node] for node in step.accepted)
    ]
    taken = f"The accepted path took {', then '.join(runs)}." if runs else "No drafted token was accepted."
    return f"{plural(len(step.tree) - 1, 'node')}: {nodes}. {taken}"


def _whose(step: Step, name: str) -> str:
    return f"{name} alone" if any(one.name == name for one in step.proposals) else name


def regret_words(step: Step, regret: Regret) -> str:
    """What verifying both trees came to."""
    counts = zip(regret.names, regret.accepted, strict=True)
    each = " and ".join(f"{name} has {count} accepted" for name, count in counts)
    if merged(step):
        return f"Verified alone, {each}; as one tree they had {len(step.accepted)}."
    lost = plural(regret.tokens, "token") if regret.tokens else "nothing"
    return f"Both verified, {each}: the choice lost {lost}."


def summary(step: Step) -> str:
    """The choice and what came of it, in sentences; empty where there was none."""
    if not step.proposals:
        return ""
    if merged(step):
        return f"{choice_words(step)} {sources_words(step)}"
    return " ".join([choice_words(step), *(outcome_words(step, place) for place in range(len(step.proposals)))])
