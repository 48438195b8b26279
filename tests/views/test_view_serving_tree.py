"""SGLang's tree: what its three numbers give, drawn with iterations of DraftHead on the mini family."""

from __future__ import annotations

import re

import pytest
from view_samples import five_nodes, parse

import speclab
from speclab import views
from speclab.errors import NotRecordedError
from speclab.views.serving_tree import sglang_sentence, sglang_table

pytestmark = pytest.mark.model
NUMBERS = [(3, 3, 10), (1, 4, 3), (2, 2, 40), (4, 2, 9)]


@pytest.fixture(scope="module")
def step():
    pair = speclab.load_pair()

    def first(depth: int, children: int, budget: int):
        strategy = speclab.DraftHead(depth=depth, children=children, node_budget=budget)
        return speclab.Session(pair, strategy, "def add(a, b):\n    return a + b\n", max_new_tokens=16).step()

    return first


def candidates(depth: int, children: int) -> int:
    """Counted level by level, as the loop in SGLang's source appends them."""
    count, level = 0, 1
    for _ in range(depth):
        given = level * children
        count, level = count + given, min(children, given)
    return count


@pytest.mark.parametrize("numbers", NUMBERS)
def test_the_sentence_and_the_table_count_every_candidate(step, numbers):
    depth, children, budget = numbers
    shown, all_of_them = step(*numbers), candidates(depth, children)
    kept = min(budget, all_of_them + 1)
    assert len(shown.tree) == kept
    said = sglang_sentence(shown)
    for fact in (f"= {all_of_them} candidate", f"num_draft_tokens={kept} ", f"at most {all_of_them + 1} "):
        assert fact in said
    table = sglang_table(shown)
    parse(table)
    rows = [[int(cell) for cell in re.findall(r">(\d+)", row)] for row in table.split("<tr>")[3:-1]]
    assert sum(row[2] for row in rows) == all_of_them
    assert all(row[2] == row[3] + row[4] for row in rows)


@pytest.mark.parametrize("numbers", NUMBERS)
def test_kept_nodes_have_their_rank_and_what_their_parents_gave_besides_is_struck_out(step, numbers):
    shown = step(*numbers)
    traces = {trace.name: trace for trace in views.sglang_tree(shown).data}
    ranks = [int(text.split()[-1]) for text in traces["notes"].text]
    assert sorted(ranks) == list(range(1, len(shown.tree)))
    given = sum(numbers[1] for node in shown.nodes if node.draft_top)
    dropped = traces["computed and dropped"]
    assert len(dropped.x) == given - (len(shown.tree) - 1)
    least = min(node.path_prob for node in shown.nodes)
    probs = [float(re.search(r"path ([\d.e-]+)", tip)[1]) for tip in dropped.hovertext]
    assert all(prob <= least * 1.1 for prob in probs), "the best are kept; tooltips are rounded"


def test_another_strategys_iteration_is_refused():
    with pytest.raises(NotRecordedError, match="DraftHead"):
        views.sglang_tree(five_nodes())
