"""GOOSE's spine tree and its baseline by direct construction: every candidate looked at for every node that is added.

A tree is a dict from path (the tokens below the root) to (probability of its last token, source), in the order in which
nodes were added. `s`: the settings by their public names. `table`: a `transitions.Table`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from reference import lookup

Path = tuple[int, ...]
Tree = dict[Path, tuple[float, str]]
After = Callable[[Path], dict[int, float]]


def after_root(table, text: Sequence[int]) -> After:
    """What the table has after a path below the text's last token."""
    whole = (-1, *text)
    return lambda path: {token: score for token, score in table.successors(*(*whole, *path)[-2:]).items() if score > 0}


def ratio(s: dict, acceptance: float) -> float:
    if acceptance < s["low_acceptance"]:
        return s["low_ratio"]
    return s["mid_ratio"] if acceptance < s["high_acceptance"] else s["high_ratio"]


def confident(s: dict, matches: Sequence[tuple[int, int, Path]], acceptance: float) -> bool:
    """Section 4.3: lengths that agree on the first token, and a long match."""
    chain = matches[0][2]
    agree = sum(tokens[0] == chain[0] for _, _, tokens in matches) >= 2
    long = len(chain) >= s["bypass_length"]
    signal = {"either": agree or long, "both": agree and long, "consensus": agree, "length": long, "off": False}
    return signal[s["bypass"]] and acceptance >= s["bypass_acceptance"]


def weight(tree: Tree, path: Path) -> float:
    """What a score after `path` is worth: what the copied token after it leaves."""
    copied = [prob for other, (prob, source) in tree.items() if other[:-1] == path and other and source == "context"]
    return 1.0 - sum(copied)


def reach(tree: Tree, path: Path) -> float:
    return math.prod(tree[path[: end + 1]][0] for end in range(len(path)))


def candidates(tree: Tree, after: After, spine: Sequence[Path], left: Sequence[float], s: dict, depth: int):
    """(probability of the path, new path, its own probability, number of its branching point on the spine)."""
    for path in tree:
        point = max((point for point in spine if path[: len(point)] == point), key=len)
        place = spine.index(point)
        room = place < len(left) and left[place] >= 1
        if not room or len(path) - len(point) >= s["branch_depth"] or len(path) >= depth:
            continue
        for token, score in after(path).items():
            if score >= s["score_threshold"] and (*path, token) not in tree:
                prob = score * weight(tree, path)
                yield reach(tree, path) * prob, (*path, token), prob, place


def spend(tree: Tree, after: After, spine: Sequence[Path], left: Sequence[float], s: dict, depth: int) -> None:
    """The likeliest candidate that its branching point can pay for, again and again."""
    left = list(left)
    while len(tree) < s["node_budget"]:
        found = list(candidates(tree, after, spine, left, s, depth))
        if not found:
            return
        _, path, prob, place = max(found)
        tree[path] = (prob, "transition")
        left[place] -= 1


def shares(s: dict, length: int, rest: int, widths: Callable[[int, int], list[float]]) -> list[float]:
    """For the root, and for each spine node: 1 - β of the rest, and β of it in the proportion 1, 1/2, 1/3, …"""
    if length == 0 or not s["spine_branches"]:
        return [rest]
    if s["schedule"] == "optimal":
        return widths(length + 1, rest)
    beta, total = s["spine_branch_ratio"], sum(1 / place for place in range(1, length + 1))
    return [(1 - beta) * rest, *(beta * rest / total / place for place in range(1, length + 1))]


def lay(tree: Tree, chain: Sequence[int], prob: float) -> None:
    for end in range(1, len(chain) + 1):
        tree[tuple(chain[:end])] = (prob, "context")


def greedy(after: After, length: int) -> Path:
    path: Path = ()
    while len(path) < length and after(path):
        path = (*path, next(iter(after(path))))
    return path


def draft_tree(
    table, text: Sequence[int], s: dict, acceptance: float, depth: int, widths: Callable[[int, int], list[float]]
) -> Tree:
    """Sections 4.1 and 4.3. `widths`: Proposition 2 at the running rates."""
    after, prob = after_root(table, text), min(max(acceptance, 0.01), 0.99)
    longest = min(s["max_spine"], s["node_budget"] - 1, depth)
    lengths = range(s["shortest_ngram"], s["longest_ngram"] + 1)
    matches = lookup.matches(text, lengths, s["pick"], longest, 16, 32) if longest > 0 else []
    chain = matches[0][2] if matches else ()
    if matches and confident(s, matches, acceptance):
        tree = {(): (1.0, "target")}
        lay(tree, chain, prob)
        return tree
    chain = () if s["spine"] == "off" else chain
    spine = chain[: int(ratio(s, acceptance) * s["node_budget"])]
    tree = build(after, s, spine, prob, depth, widths)
    if len(tree) < s["node_budget"] and len(spine) < len(chain):
        tree = build(after, s, chain[: len(spine) + s["node_budget"] - len(tree)], prob, depth, widths)
    return tree


def build(
    after: After, s: dict, spine: Path, prob: float, depth: int, widths: Callable[[int, int], list[float]]
) -> Tree:
    tree: Tree = {(): (1.0, "target")}
    if s["spine"] == "transitions":
        spine = greedy(after, len(spine))
        for end in range(1, len(spine) + 1):
            tree[spine[:end]] = (after(spine[: end - 1])[spine[end - 1]], "transition")
    else:
        lay(tree, spine, prob)
    along = [spine[:end] for end in range(len(spine) + 1)]
    left = shares(s, len(spine), s["node_budget"] - len(tree), widths)
    spend(tree, after, along, left, s, depth)
    spend(tree, after, along, [math.inf] * len(left), s, depth)
    return tree


class Rate:
    """Accepted over tried, both as running means."""

    def __init__(self, accepted: float):
        self.accepted, self.tried = accepted, 1.0

    @property
    def mean(self) -> float:
        return self.accepted / self.tried

    def add(self, accepted: int, tried: int, smoothing: float) -> None:
        if tried:
            self.accepted += smoothing * (accepted - self.accepted)
            self.tried += smoothing * (tried - self.tried)


def tries(tree: Tree, spine: Sequence[Path], accepted: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """(accepted, tried) of spine tokens, and of the transitions where the spine did not go on."""
    on_spine = sum(tuple(accepted[:end]) in spine for end in range(1, len(accepted) + 1))
    branch = [0, 0]
    for end in range(len(accepted) + 1):
        path, following = tuple(accepted[:end]), tuple(accepted[: end + 1])
        if end < len(accepted) and following in spine:
            continue
        branch[0] += end < len(accepted)
        branch[1] += sum(other[:-1] == path and other not in spine for other in tree if other)
    return (on_spine, min(on_spine + 1, len(spine))), (branch[0], branch[1])


def isotropic_tree(table, text: Sequence[int], s: dict, depth: int) -> list[Path]:
    """Uniform, breadth-first: the copied token first, then the likeliest transitions, `branching` in all."""
    after = after_root(table, text)
    lengths = range(s["shortest_ngram"], s["longest_ngram"] + 1)
    matches = lookup.matches(text, lengths, s["pick"], min(s["node_budget"] - 1, depth), 16, 32)
    copied = matches[0][2] if matches else ()
    paths: list[Path] = [()]
    for path in paths:
        wanted = [copied[len(path)]] if path == copied[: len(path)] and len(path) < len(copied) else []
        wanted += [token for token in after(path) if token not in wanted]
        for token in wanted[: s["branching"]]:
            if len(paths) < s["node_budget"] and len(path) < depth:
                paths.append((*path, token))
    return paths
