"""Which drafted tokens stand: one walk for greedy and sampled decoding.

The target-mass rule (Dual-Draft Routing, section 6.2): at each node the target chooses its next token once, and the
walk goes on to the child that carries it. The committed tokens are the target's own choices, so the output has
exactly the target's law, whatever the tree; with argmax choices it is the greedy walk of DynaTree (section 3.5).
"""

from __future__ import annotations

from dataclasses import dataclass

from speclab.sampling import Choice
from speclab.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Walk:
    """`accepted`: the drafted nodes of the path, top down. `bonus`: the target's choice after the last of them."""

    accepted: tuple[int, ...]
    bonus: int


def walk(tree: DraftTree, choose: Choice, root_choice: int | None = None) -> Walk:
    """Follows the target's choices through the tree as deep as they lead.

    Args:
        choose: the target's next token after a node; asked only for nodes that are reached.
        root_choice: the target's choice for the root's own place when the root is drafted; None when it is verified.
    """
    tokens, parents = tree.token.tolist(), tree.parent.tolist()
    reached = [root_choice is None or tokens[0] == root_choice] + [False] * (len(tree) - 1)
    for node in range(1, len(tree)):
        parent = parents[node]
        reached[node] = reached[parent] and tokens[node] == choose(parent)
    if not reached[0]:
        assert root_choice is not None
        return Walk((), root_choice)
    # Merged trees may hold a token twice under one parent: the copy that reaches deeper wins, then the first.
    last = max((node for node in range(len(tree)) if reached[node]), key=lambda node: (int(tree.depth[node]), -node))
    path = tree.path(last)
    return Walk(path if root_choice is not None else path[1:], choose(last))
