"""Retrieval by scanning: every place of the text compared with the phrase, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Path = tuple[int, ...]


def places(text: Sequence[int], phrase: Sequence[int]) -> list[int]:
    """Where the phrase ends."""
    phrase, n = list(phrase), len(phrase)
    return [end for end in range(n, len(text) + 1) if list(text[end - n : end]) == phrase]


def following(text: Sequence[int], phrase: Sequence[int]) -> Counter:
    """How often each token follows the phrase; -1 parts two texts."""
    after = [text[end] for end in places(text, phrase) if end < len(text)]
    return Counter(token for token in after if token >= 0)


def retrieved(text: Sequence[int], context: Sequence[int], s: dict, depth: int) -> dict[Path, int]:
    """Paths below the root and how often they follow the longest match; always the most frequent, then the oldest."""
    longest = min(s["longest_match"], len(context))
    lengths = [n for n in range(longest, s["shortest_match"] - 1, -1) if places(text, context[-n:])]
    tree: dict[Path, int] = {(): 0}
    if not lengths:
        return tree
    match = list(context[-lengths[0] :])
    offered = []

    def offer(path: Path) -> None:
        if len(path) < depth:
            after = following(text, [*match, *path])
            offered.extend(((*path, token), after[token]) for token in sorted(after))

    offer(())
    while offered and len(tree) < s["node_budget"]:
        path, count = max(offered, key=lambda one: one[1])  # of equals the first: the oldest
        offered.remove((path, count))
        tree[path] = count
        offer(path)
    return tree
