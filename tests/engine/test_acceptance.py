"""The walk against the paper's SELECTCOMMIT, over random trees and choices."""

from hypothesis import given, settings
from hypothesis import strategies as st
from reference.dynatree import select_commit
from support.strategies import draft_trees

from speclab.engine.acceptance import sample_and_match
from speclab.tree import DraftTree

TOKENS = st.integers(0, 2)


@st.composite
def walks(draw):
    """A tree whose siblings may have the same token, as in merged trees, and the target's choice after each node."""
    tree = draw(draft_trees(max_nodes=16))
    each = st.lists(TOKENS, min_size=len(tree), max_size=len(tree))
    return DraftTree.of(draw(each), tree.parent.tolist(), tree.log_prob.tolist(), "random"), draw(
        each
    )


@settings(max_examples=120)
@given(walks(), st.none() | TOKENS)
def test_the_walk_is_the_papers_and_asks_along_matching_paths_only(walk, root_choice):
    """`root_choice` decides about a drafted root; None: the root is verified.

    A choice may be a draw, so it counts.
    """
    (tree, choices) = walk
    asked = []
    verified = root_choice is None

    def choose(node):
        asked.append(node)
        return choices[node]

    first = int(tree.token[0]) if verified else root_choice
    path, committed = select_commit(tree.token.tolist(), tree.parent.tolist(), choices, first)
    taken = sample_and_match(tree, choose, root_choice)
    assert list(taken.accepted) == path[verified:]
    assert [*tree.token[list(taken.accepted)].tolist(), taken.bonus] == committed[verified:]
    for node in asked:
        assert all(
            tree.token[child] == choices[tree.parent[child]] for child in tree.path(node)[1:]
        )
