"""Random steps: any tree, any path down it, texts that try to break out of their markup."""

from __future__ import annotations

from hypothesis import strategies as st
from strategies import draft_trees
from view_samples import ODD, WORDS, build_step

from speclab.trace.records import Step

VOCAB = 64
TEXTS = {token: [*ODD, *WORDS][token % (len(ODD) + len(WORDS))] for token in range(2 * VOCAB)}


@st.composite
def steps(draw: st.DrawFn, max_nodes: int = 40) -> Step:
    tree = draw(draft_trees(max_nodes=max_nodes, vocab=VOCAB))
    drafted_root = draw(st.booleans())
    path = [0]
    while tree.children[path[-1]] and draw(st.integers(0, 3)):
        path.append(draw(st.sampled_from(tree.children[path[-1]])))
    if drafted_root and draw(st.booleans()):
        path = []
    accepted = path if drafted_root else path[1:]
    bonus = draw(st.integers(0, VOCAB - 1)) if not accepted or draw(st.booleans()) else None
    return build_step(
        tree, accepted, bonus=bonus, drafted_root=drafted_root, texts=TEXTS, prefix=draw(st.integers(1, 300))
    )
