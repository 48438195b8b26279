"""GOOSE's spine tree and its baseline by direct construction: every candidate looked at for every
node that is added.

A tree is a dict from path (the tokens below the root) to (probability of its last token, source),
in the order in which nodes were added. `s`: the settings by their public names.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from reference import lookup

Path = tuple[int, ...]
Tree = dict[Path, tuple[float, str]]
After = Callable[[Path], dict[int, float]]


class Table:
    """By token, and with `pairs` by pair of tokens: the `width` likeliest successors in its newest row."""

    def __init__(self, width, pairs):
        self.width = width
        self.longest = 1 + pairs
        self.after: dict[Path, dict[int, float]] = {}

    def harvest(self, previous, tokens, rows):
        for before, token, probs in zip(previous, tokens, rows, strict=True):
            best = sorted(range(len(probs)), key=lambda each: -probs[each])[: self.width]
            for key in ((token,), (before, token))[: self.longest]:
                self.after[key] = {each: probs[each] for each in best}

    def successors(self, previous, token):
        return self.after.get((previous, token)) or self.after.get((token,)) or {}


def after_root(table, text, *, shares=False):
    """What the table has after a path below the text's last token; as shares these add up to 1."""
    whole = (-1, *text)

    def after(path):
        found = {
            token: score
            for token, score in table.successors(*(*whole, *path)[-2:]).items()
            if score > 0
        }
        total = sum(found.values()) if shares else 1.0
        return {token: score / total for token, score in found.items()}

    return after


def ratio(s, acceptance):
    if acceptance < 0.5:
        return s["low_ratio"]
    return s["mid_ratio"] if acceptance < 0.8 else s["high_ratio"]


def bypasses(s, found, acceptance):
    """Section 4.3: matches that agree, and a long one; either or both."""
    agree = sum(tokens[0] == found[0][2][0] for _, _, tokens in found) >= 2
    long = len(found[0][2]) >= 8
    signal = {"either": agree or long, "both": agree and long, "off": False}
    return signal[s["bypass"]] and acceptance >= s["bypass_acceptance"]


def weight(tree, path):
    """What a score after `path` is worth: what the copied token after it leaves."""
    copied = [
        prob
        for other, (prob, source) in tree.items()
        if other[:-1] == path and other and source == "context"
    ]
    return 1.0 - sum(copied)


def reach(tree, path):
    return math.prod(tree[path[: end + 1]][0] for end in range(len(path)))


def may_grow(s, path, point, depth):
    return len(path) - len(point) < s["branch_depth"] and len(path) < depth


def candidates(tree, after, spine, left, s, depth):
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
    tree,
    after,
    spine,
    left,
    s,
    depth,
    budget,
):
    """The likeliest candidate that its branching point can pay for, again and again."""
    left = list(left)
    while len(tree) < budget:
        found = list(candidates(tree, after, spine, left, s, depth))
        if not found:
            return
        _, path, prob, place = max(found)
        tree[path] = (prob, "transition")
        left[place] -= 1


def shares(s, length, rest):
    """For the root, and for each spine node: 1 - beta of the rest, and beta of it as 1, 1/2, 1/3, ..."""
    beta = s["spine_branch_ratio"]
    if length == 0 or beta == 0:
        return [rest]
    total = sum(1 / place for place in range(1, length + 1))
    return [(1 - beta) * rest, *(beta * rest / total / place for place in range(1, length + 1))]


def lay(tree, chain, prob):
    for end in range(1, len(chain) + 1):
        tree[tuple(chain[:end])] = (prob, "context")


def greedy(after, length):
    path: Path = ()
    while len(path) < length and after(path):
        path = (*path, next(iter(after(path))))
    return path


def draft_tree(table, text, s, acceptance, depth):
    """Sections 4.1 and 4.3."""
    after = after_root(table, text, shares=True)
    prob = min(max(acceptance, 0.01), 0.99)
    budget = s["node_budget"]
    longest = min(s["max_spine"], budget - 1, depth)
    lengths = range(s["shortest_ngram"], s["longest_ngram"] + 1)
    matches = lookup.matches(text, lengths, longest) if longest > 0 and s["spine"] != "off" else []
    chain = matches[0][2] if matches else ()
    share = ratio(s, acceptance)
    if s["bypass"] == "graded":  # the authors' code
        chain, sure = (), 0
        if longest > 0 and s["spine"] != "off":
            chain, sure = graded_chain(tuple(text), lengths, longest, budget)
        chain = chain[: min(budget - 1, depth)]
        budget = max(1, int(budget * (0.6 + 0.4 * sure)))
        share += sure * (1 - share)
    elif matches and bypasses(s, matches, acceptance):
        return build(after, s, chain, prob, 0, len(chain) + 1)
    spine = chain[: int(share * budget)]
    tree = build(after, s, spine, prob, depth, budget)
    if len(tree) < budget and len(spine) < len(chain):
        tree = build(after, s, chain[: len(spine) + budget - len(tree)], prob, depth, budget)
    return tree


def graded_chain(text, lengths, copied, most):
    """The chain of the authors' code and its confidence: each lookup asks where the text goes on."""

    def looked_up(end):
        """All that followed the longest n-gram at the end of `end`, in the order of the text."""
        for n in sorted(lengths, reverse=True):
            found = [text[i + n :] for i in range(len(text) - n) if text[i : i + n] == end[-n:]]
            if found:
                return found
        return []

    def unanimous(found):
        return len(found) > 1 and len({rest[0] for rest in found}) == 1

    found = looked_up(text)
    if not found:
        return (), 0
    chain = found[0][:copied]
    if unanimous(found):
        sure = 1.0
    elif len(chain) >= 8:
        sure = min(0.9, 0.7 + 0.2 * (len(chain) - 8) / 12)
    else:
        sure = 0.6 * len(chain) / 8
    more = sure > 0.6
    while more and len(chain) < int(most * sure):
        found = looked_up(text + chain)
        more = bool(found) and (sure < 1 or unanimous(found))
        chain += found[0][:copied] if found else ()
    return chain, sure


def build(after, s, spine, prob, depth, budget):
    tree: Tree = {(): (1.0, "target")}
    if s["spine"] == "transitions":
        spine = greedy(after, len(spine))
        for end in range(1, len(spine) + 1):
            tree[spine[:end]] = (after(spine[: end - 1])[spine[end - 1]], "transition")
    else:
        lay(tree, spine, prob)
    along = [spine[:end] for end in range(len(spine) + 1)]
    left = shares(s, len(spine), budget - len(tree))
    spend(tree, after, along, left, s, depth, budget)
    spend(tree, after, along, [math.inf] * len(left), s, depth, budget)
    return tree


class Rate:
    """Accepted over tried, both as running means."""

    def __init__(self, accepted):
        self.accepted = accepted
        self.tried = 1.0

    @property
    def mean(self):
        return self.accepted / self.tried

    def add(self, accepted, tried, smoothing):
        if tried:
            self.accepted += smoothing * (accepted - self.accepted)
            self.tried += smoothing * (tried - self.tried)


def tries(spine, accepted):
    """(accepted, tried) spine tokens: the first one that is rejected ends the spine."""
    on_spine = sum(tuple(accepted[:end]) in spine for end in range(1, len(accepted) + 1))
    return on_spine, min(on_spine + 1, len(spine))


def isotropic_tree(table, text, s, depth):
    """Uniform, breadth-first: the copied token first, then the likeliest transitions, `branching` in all."""
    after = after_root(table, text)
    lengths = range(s["shortest_ngram"], s["longest_ngram"] + 1)
    limit = min(s["node_budget"] - 1, depth)
    matches = lookup.matches(text, lengths, limit) if limit > 0 else []
    copied = matches[0][2] if matches else ()
    paths: list[Path] = [()]
    for path in paths:
        wanted = (
            [copied[len(path)]] if path == copied[: len(path)] and len(path) < len(copied) else []
        )
        wanted += [token for token in after(path) if token not in wanted]
        for token in wanted[: s["branching"]]:
            if len(paths) < s["node_budget"] and len(path) < depth:
                paths.append((*path, token))
    return paths
