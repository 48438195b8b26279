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


def after_root(table, text: Sequence[int], scores: str = "vocabulary") -> After:
    """What the table has after a path below the text's last token; "kept" scores add up to 1."""
    whole = (-1, *text)

    def after(path: Path) -> dict[int, float]:
        found = {token: score for token, score in table.successors(*(*whole, *path)[-2:]).items() if score > 0}
        total = sum(found.values()) if scores == "kept" else 1.0
        return {token: score / total for token, score in found.items()}

    return after


def ratio(s: dict, acceptance: float) -> float:
    if acceptance < s["low_acceptance"]:
        return s["low_ratio"]
    return s["mid_ratio"] if acceptance < s["high_acceptance"] else s["high_ratio"]


def agree(s: dict, text: Sequence[int], found: Sequence[tuple[int, int, Path]], after: Sequence[int] = ()) -> bool:
    if s["consensus"] == "occurrences":
        return lookup.unanimous(text, range(s["shortest_ngram"], s["longest_ngram"] + 1), after)
    return sum(tokens[0] == found[0][2][0] for _, _, tokens in found) >= 2


def confidence(s: dict, text: Sequence[int], found: Sequence[tuple[int, int, Path]], acceptance: float) -> float:
    """Section 4.3: matches that agree, and a long one; 1 is a bypass."""
    if s["bypass"] == "gradual":
        return by_degrees(s, text, found)
    both, long = agree(s, text, found), len(found[0][2]) >= s["bypass_length"]
    signal = {"either": both or long, "both": both and long, "consensus": both, "length": long, "off": False}
    return float(signal[s["bypass"]] and acceptance >= s["bypass_acceptance"])


def by_degrees(
    s: dict, text: Sequence[int], found: Sequence[tuple[int, int, Path]], after: Sequence[int] = ()
) -> float:
    """The authors' code: 1 by consensus; 0.7 to 0.9 for 8 tokens to 20; below 8 in proportion, up to 0.6."""
    if agree(s, text, found, after):
        return 1.0
    share = len(found[0][2]) / s["bypass_length"]
    return 0.6 * share if share < 1 else min(0.9, 0.7 + (len(found[0][2]) - s["bypass_length"]) / 60)


def extended(s: dict, text: Sequence[int], chain: Path, sure: float, most: int) -> Path:
    """The authors' code: matched again at the chain's end; a sure chain ends with the first match that is not."""
    lengths = range(s["shortest_ngram"], s["longest_ngram"] + 1)
    while len(chain) < most:
        found = lookup.matches(text, lengths, s["pick"], s["max_spine"], 32, chain)
        if not found:
            break
        last = sure == 1 and by_degrees(s, text, found, chain) < 1
        chain = (*chain, *found[0][2])[:most]
        if last:
            break
    return chain


def weight(tree: Tree, path: Path) -> float:
    """What a score after `path` is worth: what the copied token after it leaves."""
    copied = [prob for other, (prob, source) in tree.items() if other[:-1] == path and other and source == "context"]
    return 1.0 - sum(copied)


def reach(tree: Tree, path: Path) -> float:
    return math.prod(tree[path[: end + 1]][0] for end in range(len(path)))


def may_grow(s: dict, path: Path, point: Path, depth: int) -> bool:
    below = len(path) if s["depth_from"] == "root" and path != point else len(path) - len(point)
    return below < s["branch_depth"] and len(path) < depth


def candidates(tree: Tree, after: After, spine: Sequence[Path], left: Sequence[float], s: dict, depth: int):
    """(probability of the path, new path, its own probability, number of its branching point on the spine)."""
    for path in tree:
        point = max((point for point in spine if path[: len(point)] == point), key=len)
        place = spine.index(point)
        room = place < len(left) and left[place] >= 1
        if not room or not may_grow(s, path, point, depth):
            continue
        for token, score in after(path).items():
            if score >= s["score_threshold"] and (*path, token) not in tree:
                prob = score * weight(tree, path)
                yield reach(tree, path) * prob, (*path, token), prob, place


def spend(
    tree: Tree, after: After, spine: Sequence[Path], left: Sequence[float], s: dict, depth: int, budget: int
) -> None:
    """The likeliest candidate that its branching point can pay for, again and again."""
    left = list(left)
    while len(tree) < budget:
        found = list(candidates(tree, after, spine, left, s, depth))
        if not found:
            return
        _, path, prob, place = max(found)
        tree[path] = (prob, "transition")
        left[place] -= 1


def attach(tree: Tree, after: After, path: Path, width: int, worth: float, s: dict, budget: int) -> list[Path]:
    """The first `width` successors that score enough and are not there."""
    added: list[Path] = []
    for token, score in after(path).items():
        enough = score >= s["score_threshold"] and len(added) < width and len(tree) < budget
        if enough and (*path, token) not in tree:
            tree[*path, token] = (score * worth, "transition")
            added.append((*path, token))
    return added


def by_levels(
    tree: Tree, after: After, spine: Sequence[Path], widths: Sequence[int], s: dict, depth: int, budget: int
) -> None:
    """Algorithm 1 with the widths of the authors' code: alternatives at the root and along the spine; then all of them
    are extended, level by level, each by the share of the nodes left that its score is, or the table's width over its
    depth where that is less."""
    waiting = [
        (path, point)
        for point, width in zip(spine, widths, strict=False)
        if len(point) < depth
        for path in attach(tree, after, point, width, weight(tree, point), s, budget)
    ]
    for path, point in waiting:  # grows on the way
        if len(tree) < budget and may_grow(s, path, point, depth):
            score = after(path[:-1])[path[-1]]
            most = math.ceil((budget - len(tree)) * score)
            width = min(most, max(1, s["table_width"] // len(path)))
            waiting += [(child, point) for child in attach(tree, after, path, width, 1.0, s, budget)]


def whole(parts: Sequence[float]) -> list[int]:
    """Numbers of alternatives: along the spine one each at least, while there are any; the rest at the root."""
    along = sum(parts[1:])
    total = min(round(sum(parts)), max(1, math.floor(along + 1e-9))) if along else 0
    counts: list[int] = []
    for part in parts[1:]:
        wanted = max(1, math.floor(total * part / along + 1e-9)) if along else 0
        counts.append(min(wanted, total - sum(counts)))
    return [round(sum(parts)) - total, *counts]


def shares(s: dict, length: int, rest: int, widths: Callable[[int, int], list[float]]) -> list[float]:
    """For the root, and for each spine node: 1 - β of the rest, and β of it as 1, 1/2, 1/3, …, or in equal parts."""
    if length == 0 or not s["spine_branches"]:
        return [rest]
    if s["schedule"] == "optimal":
        return widths(length + 1, rest)
    beta = s["spine_branch_ratio"]
    if s["schedule"] == "equal":
        return [(1 - beta) * rest, *[beta * rest / length] * length]
    total = sum(1 / place for place in range(1, length + 1))
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
    after, prob = after_root(table, text, s["scores"]), min(max(acceptance, 0.01), 0.99)
    s = {**s, "table_width": table.width}
    longest = min(s["max_spine"], s["node_budget"] - 1, depth)
    lengths = range(s["shortest_ngram"], s["longest_ngram"] + 1)
    matches = lookup.matches(text, lengths, s["pick"], longest, 32) if longest > 0 else []
    chain = matches[0][2] if matches else ()
    sure = confidence(s, text, matches, acceptance) if matches else 0.0
    if sure > 0.6:
        chain = extended(s, text, chain, sure, min(int(s["extended_spine"] * sure), s["node_budget"] - 1, depth))
    if sure == 1 and s["bypass"] != "gradual":
        tree = {(): (1.0, "target")}
        lay(tree, chain, prob)
        return tree
    chain = () if s["spine"] == "off" else chain
    budget = max(1, s["node_budget"] - round((1 - sure) * s["reserved_share"] * s["node_budget"]))
    base = ratio(s, acceptance)
    spine = chain[: min(int((base + sure * (1 - base)) * budget), budget - 1)]
    tree = build(after, s, spine, prob, depth, widths, budget)
    if len(tree) < budget and len(spine) < len(chain):
        tree = build(after, s, chain[: len(spine) + budget - len(tree)], prob, depth, widths, budget)
    return tree


def build(
    after: After, s: dict, spine: Path, prob: float, depth: int, widths: Callable[[int, int], list[float]], budget: int
) -> Tree:
    tree: Tree = {(): (1.0, "target")}
    if s["spine"] == "transitions":
        spine = greedy(after, len(spine))
        for end in range(1, len(spine) + 1):
            tree[spine[:end]] = (after(spine[: end - 1])[spine[end - 1]], "transition")
    else:
        lay(tree, spine, prob)
    along = [spine[:end] for end in range(len(spine) + 1)]
    left = shares(s, len(spine), budget - len(tree), widths)
    if s["filling"] == "breadth":
        by_levels(tree, after, along, whole(left), s, depth, budget)
    else:
        spend(tree, after, along, left, s, depth, budget)
        spend(tree, after, along, [math.inf] * len(left), s, depth, budget)
    return tree


class Rate:
    """Accepted over tried, both as running means."""

    def __init__(self, accepted: float):
        self.accepted, self.tried = accepted, 1.0

    @property
    def mean(self) -> float:
        return self.accepted / self.tried

    def add(self, accepted: float, tried: float, smoothing: float) -> None:
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
    matches = lookup.matches(text, lengths, s["pick"], min(s["node_budget"] - 1, depth), 32)
    copied = matches[0][2] if matches and s["copies"] else ()
    paths: list[Path] = [()]
    for path in paths:
        wanted = [copied[len(path)]] if path == copied[: len(path)] and len(path) < len(copied) else []
        wanted += [token for token in after(path) if token not in wanted]
        for token in wanted[: s["branching"]]:
            if len(paths) < s["node_budget"] and len(path) < depth:
                paths.append((*path, token))
    return paths
