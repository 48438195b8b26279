"""Graft: the draft's part is DynaTree's, and only its leaves go on with other sources."""

from support.every_strategy import PROMPT, pair_of
from support.records import paths_of, ran

import speclab

GRAFT = speclab.Graft(node_budget=14, stop_probability=0.3)
RULES = speclab.DynaTree(node_budget=14, base_depth=1, stop_probability=0.3, deep_probability=0.3)


def test_the_drafts_part_is_the_tree_of_its_rules_and_the_rest_hangs_below_its_leaves():
    session = ran(pair_of(), GRAFT, PROMPT, max_new_tokens=24)
    sources = set()
    for step in session.steps[:-4]:
        tree = step.tree
        part = session.fork(at=step.index, strategy=RULES).step().tree
        drafted = {
            path: node
            for path, node in paths_of(tree).items()
            if tree.source[node] in {"target", "draft"}
        }
        assert drafted.keys() == paths_of(part).keys()
        assert len(tree) == 14 >= len(part)
        for children in tree.children:
            kinds = {tree.source[child] for child in children}
            assert "draft" not in kinds or kinds == {"draft"}
        sources |= set(tree.source)
    assert sources == {"target", "draft", "context", "transition"}
