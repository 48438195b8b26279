"""DynaTree's Algorithm 1 and its neighbours in the plainest Python: slow, one function a piece of
the paper.

A *distribution* is a function from the tokens drafted so far (after the committed text) to the
draft's distribution of the next token, a list of probabilities. Distributions have no ties, so "the
k likeliest" has one meaning.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Path = tuple[int, ...]
DistributionFn = Callable[[Path], Sequence[float]]


@dataclass
class Node:
    """u: token z_u, parent pi(u), depth d(u), log-probability l_u and its sum over the path (section 3.3)."""

    token: int
    parent: int
    depth: int
    log_prob: float
    path_log_prob: float
    path: Path
    """The drafted tokens from the root to here; a verified root is committed text, so its path is empty."""


@dataclass
class Drafted:
    """A tree, breadth-first, and every decision: (path of the node, gate that closed or "expand", B(u))."""

    nodes: list[Node]
    decisions: list[tuple[Path, str, int]] = field(default_factory=list)
    pruned: list[Path] = field(default_factory=list)

    @property
    def token(self):
        return [node.token for node in self.nodes]

    @property
    def parent(self):
        return [node.parent for node in self.nodes]

    @property
    def log_prob(self):
        return [node.log_prob for node in self.nodes]

    @property
    def expanded(self):
        return [path for path, gate, _ in self.decisions if gate == "expand"]


def top(probs, count):
    """The `count` likeliest tokens, best first."""
    return sorted(range(len(probs)), key=lambda token: -probs[token])[:count]


def start(probs, root):
    """Line 10: the root is the draft's top-1 token; or (`root` given) the newest committed token."""
    if root is not None:
        return Drafted([Node(root, -1, 0, 0.0, 0.0, ())])
    first = probs(())
    token = top(first, 1)[0]
    log_prob = math.log(first[token])
    return Drafted([Node(token, -1, 0, log_prob, log_prob, (token,))])


def branches(confidence, s):
    """Line 27, B(u)."""
    if confidence >= s["high_confidence"]:
        return s["min_branches"]
    if confidence < s["low_confidence"]:
        return s["max_branches"]
    return s["mid_branches"]


def gate(node, s):
    """Lines 14 to 25: the first gate that closes, or "expand"."""
    probability = math.exp(node.path_log_prob)
    if probability < s["prune_probability"]:
        return "prune"
    if node.depth >= s["max_depth"]:
        return "max depth"
    if probability < s["stop_probability"]:
        return "stop"
    if node.depth >= s["base_depth"] and probability < s["deep_probability"]:
        return "deep"
    return "expand"


def add_children(tree, at, probs, count, budget):
    """Line 28: the top candidates become children until the budget is reached; the new places."""
    node = tree.nodes[at]
    new = []
    for token in top(probs, count):
        if len(tree.nodes) >= budget:
            break
        log_prob = math.log(probs[token])
        total = node.path_log_prob + log_prob
        new.append(len(tree.nodes))
        tree.nodes.append(Node(token, at, node.depth + 1, log_prob, total, (*node.path, token)))
    return new


def prune(tree, threshold):
    """Section 3.3: leaves below tau go, never the root; until no leaf is below it."""
    nodes = tree.nodes
    pruned = []
    while True:
        inner = {node.parent for node in nodes}
        doomed = {
            place
            for place, node in enumerate(nodes)
            if place and place not in inner and math.exp(node.path_log_prob) < threshold
        }
        if not doomed:
            return Drafted(nodes, tree.decisions, pruned)
        pruned += [nodes[place].path for place in doomed]
        kept = [place for place in range(len(nodes)) if place not in doomed]
        new_place = {old: new for new, old in enumerate(kept)} | {-1: -1}
        nodes = [
            Node(n.token, new_place[n.parent], n.depth, n.log_prob, n.path_log_prob, n.path)
            for n in (nodes[place] for place in kept)
        ]


def draft_tree(probs, s, root=None):
    """DRAFTTREE, lines 9 to 31, then the pruning of section 3.3. `s`: the settings by their public
    names.

    `root`: the verified root's token, or None for the paper's drafted root.
    """
    tree = start(probs, root)
    active = deque([0])  # line 11
    while active and len(tree.nodes) < s["node_budget"]:  # line 12
        place = active.popleft()  # line 13, first in first out: breadth-first
        node = tree.nodes[place]
        closed = gate(node, s)
        if closed != "expand":
            tree.decisions.append((node.path, closed, 0))
            continue
        after = probs(node.path)  # line 26
        count = branches(max(after), s)
        tree.decisions.append((node.path, "expand", count))
        active.extend(add_children(tree, place, after, count, s["node_budget"]))
    return prune(tree, s["prune_probability"])


def published_tree(probs, base_depth=5, max_depth=8, budget=256):
    """The tree of the authors' published code: it asks for the depth that a child would have, and
    takes nothing out.

    Level by level, under its own run's values: 0.9 and 0.4, 1 to 3 branches, 0.1 and 0.5, and a τ
    that never acts.
    """
    tree = start(probs, None)
    level = [0]
    while level and len(tree.nodes) < budget:
        below = []
        for place in level:
            node = tree.nodes[place]
            probability = math.exp(node.path_log_prob)
            child_depth = node.depth + 1
            likely = probability >= 0.1 and (child_depth < base_depth or probability > 0.5)
            if not likely or child_depth >= max_depth:
                continue
            after = probs(node.path)
            count = 1 if max(after) > 0.9 else 3 if max(after) < 0.4 else 2
            below += add_children(tree, place, after, count, budget)
        level = below
    return tree


def published_statistic(committed, base_depth=5):
    """Its acceptance of a prompt: tokens committed in all over D_0 + 2 an iteration, which deep paths exceed."""
    return sum(committed) / (len(committed) * (base_depth + 2))


def select_commit(tokens, parents, choices, first):
    """SELECTCOMMIT, lines 32 to 42: the nodes of the longest greedy-consistent path, and what it
    commits.

    `first`: the target's own next token after the prefix; `choices[i]`: its next token after node
    `i`. With a verified root `first` is the root's own token, which is committed already.
    """
    if tokens[0] != first:
        return [], [first]
    best = [0]
    for place in range(len(tokens)):
        path = [place]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        valid = all(tokens[child] == choices[parent] for parent, child in pairwise(path))
        if valid and len(path) > len(best):
            best = path
    return best, [*(tokens[place] for place in best), choices[best[-1]]]


def adjust(s, accepted):
    """ADJUST, line 7, with the schedule of the published code; `accepted`: a_r of every iteration
    so far.

    Window 10, target 0.7, dead band 0.1; fewer than 5 entries change nothing.
    """
    window = list(accepted)[-10:]
    if len(window) < 5:
        return dict(s)
    mean = sum(window) / len(window)
    if mean > 0.7 + 0.1:
        return s | {
            "base_depth": min(s["base_depth"] + 1, s["max_depth"] - 1),
            "high_confidence": max(s["high_confidence"] - 0.05, 0.5),
            "deep_probability": max(s["deep_probability"] - 0.05, 0.3),
        }
    if mean < 0.7 - 0.1:
        return s | {
            "base_depth": max(s["base_depth"] - 1, 2),
            "high_confidence": min(s["high_confidence"] + 0.05, 0.95),
            "deep_probability": min(s["deep_probability"] + 0.05, 0.8),
        }
    return dict(s)


@dataclass
class Round:
    """One iteration: the tree, the nodes of the committed path (a verified root is not among them),
    the tokens.
    """

    settings: dict
    tree: Drafted
    accepted: list[int]
    committed: list[int]


def decode(target, draft, prompt, s, rounds):
    """DynaTree, Algorithm 1 round after round, greedy: the prefill's first token, and every
    iteration.

    `target` and `draft` are distributions of the whole text. `s["root"]`: "verified" or "drafted".
    """
    verified = s["root"] == "verified"
    first = top(target(prompt), 1)[0]
    text = (*prompt, first)
    statistics = []
    done = []
    for _ in range(rounds):
        tree = draft_tree(
            lambda path, text=text: draft((*text, *path)), s, text[-1] if verified else None
        )
        choices = [top(target((*text, *node.path)), 1)[0] for node in tree.nodes]
        due = text[-1] if verified else top(target(text), 1)[0]
        path, committed = select_commit(tree.token, tree.parent, choices, due)
        accepted, committed = (path[1:], committed[1:]) if verified else (path, committed)
        drafted = len(tree.nodes) - verified
        statistics += [len(accepted) / drafted] if drafted else []  # a_r
        done.append(Round(s, tree, accepted, committed))
        text = (*text, *committed)
        s = adjust(s, statistics) if s["history"] == "iteration" and drafted else s
    return first, done
