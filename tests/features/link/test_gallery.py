"""The gallery's links show what its sentences say."""

import re
from pathlib import Path

import speclab

DOCS = Path(__file__).parents[3] / "docs"
ENTRY = re.compile(r"\[!\[(.+)\]\((.+)\)\]\((\S+)\)")
ENTRIES = {
    title: (picture, link)
    for title, picture, link in ENTRY.findall((DOCS / "gallery.md").read_text(encoding="utf-8"))
}


def _step(title):
    _, link = ENTRIES[title]
    (step,) = speclab.open_link(link).steps
    return step


def _branches(step):
    return {len(children) for children in step.tree.children if children}


def test_there_are_eight_pictures_each_a_link():
    assert len(ENTRIES) == 8
    for picture, _ in ENTRIES.values():
        assert (DOCS / picture).stat().st_size > 2_000


def test_a_tree_wins_by_a_second_choice_and_a_chain_by_its_length():
    tree = _step("A tree that wins")
    parents = tree.tree.parent.tolist()
    assert any(tree.tree.children[parents[node]][0] != node for node in tree.accepted)
    chain = _step("A chain that wins")
    assert _branches(chain) == {1}
    assert len(chain.accepted) >= 6


def test_a_draft_is_wrong_and_two_tokens_nearly_tie():
    wrong = _step("A draft that is wrong")
    assert (len(wrong.accepted), len(wrong.committed)) == (0, 1)
    assert len(wrong.tree) > 8
    tie = _step("A near-tie")
    assert min(tie.nodes[node].choice_prob for node in tie.path) < 0.5


def test_a_fault_is_found_two_heads_propose_and_paths_are_rows():
    assert {finding.kind for finding in _step("A fault found").findings} >= {"position"}
    assert len(_step("Two heads").proposals) == 2
    assert len(_step("A state-space model, by paths").paths) > 1


def test_dynatree_branches_where_the_draft_is_unsure():
    assert {1, 3} <= _branches(_step("DynaTree's threshold"))
