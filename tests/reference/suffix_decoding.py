"""SuffixDecoding by counting: every phrase is looked for in every text, and every pattern length is tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Path = tuple[int, ...]


class Tree(NamedTuple):
    """Paths below the newest token with C(N) of their last tokens, in the order they were added."""

    score: float
    source: str
    pattern: int
    shares: dict[Path, float]


def ends(texts: Sequence[Sequence[int]], phrase: Sequence[int]) -> list[tuple[int, int]]:
    """(text, place after it) of every occurrence of a phrase."""
    n = len(phrase)
    return [
        (which, start + n)
        for which, text in enumerate(texts)
        for start in range(len(text) - n + 1)
        if list(text[start : start + n]) == list(phrase)
    ]


def followers(texts: Sequence[Sequence[int]], phrase: Sequence[int]) -> dict[int, tuple[int, tuple[int, int]]]:
    """Token to (how often it follows the phrase, where last); the most frequent first, of equals the last seen."""
    found: dict[int, tuple[int, tuple[int, int]]] = {}
    for which, end in ends(texts, phrase):
        if end < len(texts[which]):
            token = texts[which][end]
            found[token] = (found.get(token, (0, (0, 0)))[0] + 1, (which, end))
    return dict(sorted(found.items(), key=lambda item: item[1], reverse=True))


def grown(
    texts: Sequence[Sequence[int]], pattern: Sequence[int], most: int, deepest: int, s: dict
) -> dict[Path, float]:
    """Greedy: of all tokens that could be added the one with the largest D(N), of equals the one found first."""
    offered: list[tuple[Path, float, float]] = []
    shares: dict[Path, float] = {}

    def offer(path: Path, prob: float) -> None:
        after = followers(texts, [*pattern, *path])
        among = sum(count for count, _ in after.values())
        for place, (token, (count, _)) in enumerate(after.items()):
            if len(path) < deepest and (s["use_tree_spec"] or not place):
                offered.append(((*path, token), prob * count / among, count / among))

    offer((), 1.0)
    while len(shares) < most:
        likely = [one for one in offered if one[1] >= s["min_token_prob"]]
        if not likely:
            break
        best = max(likely, key=lambda one: one[1])
        offered.remove(best)
        shares[best[0]] = best[2]
        offer(best[0], best[1])
    return shares


def score(shares: dict[Path, float]) -> float:
    """SCORE: the sum over all paths of the product of their shares."""
    total = 0.0
    for path in shares:
        prob = 1.0
        for depth in range(1, len(path) + 1):
            prob *= shares[path[:depth]]
        total += prob
    return total


def every(request: Sequence[int], earlier: Sequence[Sequence[int]], s: dict, max_depth: int) -> list[Tree]:
    """The tree of each pattern length and each suffix tree in which the pattern occurs (earlier, in the request)."""
    found = []
    for source, texts in (("per-request", [request]), ("global", earlier)):
        for p in range(1, min(len(request), s["max_tree_depth"] - 1) + 1):
            pattern = request[-p:]
            if len(ends(texts, pattern)) <= (source == "per-request"):
                break
            most = min(int(s["max_spec_factor"] * p + 1e-6), s["max_tree_depth"])
            shares = grown(texts, pattern, most, min(s["max_tree_depth"] - p, max_depth), s)
            found.append(Tree(score(shares), source, p, shares))
    return found
