"""Token Recycling: the static template, filled from a table of what was verified, cold or carried over."""

from __future__ import annotations

from collections import Counter

import pytest
from records import assert_consistent
from reference import transitions as reference
from table_runner import TableRunner, mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.token_recycling import LEVELS, template

VOCAB = 12
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-1:]), 0.8)
"""What comes next depends mostly on the last token, so that a table of transitions is often right."""


def lone(probs=PROBS):
    return table_pair(probs, None, VOCAB)


def paths_of(tree):
    return [tuple(tree.token[list(tree.path(node))[1:]].tolist()) for node in range(1, len(tree))]


def test_the_papers_template():
    depth = [0]
    for parent, _ in template(81, 8):
        depth.append(depth[parent] + 1)
    assert Counter(depth[1:]) == dict(enumerate(LEVELS, start=1))
    assert template(81, 8)[:8] == tuple((0, rank) for rank in range(8))


@pytest.mark.parametrize("budget", [1, 2, 13, 25, 41, 60, 81])
def test_smaller_templates_are_part_of_the_larger(budget):
    """As (rank, rank, …) paths."""

    def paths(nodes):
        found = [()]
        for parent, rank in nodes:
            found.append((*found[parent], rank))
        return set(found)

    assert len(paths(template(budget, 8))) == budget
    assert paths(template(budget, 8)) <= paths(template(81, 8))


@pytest.mark.parametrize("budget", [13, 81])
def test_every_iteration_is_the_papers(budget):
    """The table of prefill and all rows, as a dict of dicts; the tree filled from it; the text the target's own."""
    strategy = speclab.TokenRecycling(node_budget=budget, successors=5)
    session = speclab.Session(lone(), strategy, [1, 2, 3, 1, 2], max_new_tokens=30)
    plain, text = reference.Table(5), list(session.prompt_ids)
    rows = [PROBS(tuple(text[: end + 1])) for end in range(len(text))]
    plain.harvest([-1, *text[:-1]], text, [reference.logs(row) for row in rows])
    while not session.done:
        text = session.prompt_ids + session.token_ids
        step = session.step()
        expected = reference.static_tree(plain, text, template(budget, 5), 1000)
        assert paths_of(step.tree) == expected
        accepted = {0, *step.accepted}
        for node in sorted(range(len(step.tree)), key=accepted.__contains__):
            path = (*text, *step.tree.token[list(step.tree.path(node))[1:]].tolist())
            plain.harvest([path[-2]], [path[-1]], [reference.logs(PROBS(path))])
        assert_consistent(step)
        assert step.adaptation.after["table_rows"] == len(plain.after)
    assert (
        session.token_ids
        == speclab.generate(lone(), speclab.Autoregressive(), [1, 2, 3, 1, 2], max_new_tokens=30).token_ids
    )
    assert session.metrics.counts.accepted > 5


@pytest.mark.parametrize("rows", [2, 100])
def test_a_long_prompt_is_harvested_in_chunks(rows, monkeypatch):
    """The last row's logits, every row in the table, and the cache as one pass leaves it."""
    monkeypatch.setattr("speclab.drafters.training_free.PREFILL_ROWS", rows)
    prompt, runner = [1, 2, 3, 4, 5, 6, 7], TableRunner(PROBS, VOCAB)
    drafter = speclab.TokenRecycling().drafter(lone())
    logits = drafter.prefill(runner, prompt)
    assert logits.rows[0].tolist() == pytest.approx(reference.logs(PROBS(tuple(prompt))), abs=1e-4)
    assert runner.tokens == prompt
    assert runner.calls == -(-len(prompt) // rows)
    assert drafter.table.filled == 7


# Cold and carried


def test_a_cold_table_knows_nothing_of_the_prompt_before():
    pair = lone()
    speclab.generate(pair, speclab.TokenRecycling(), [1, 2, 3, 4, 5, 6], max_new_tokens=20)
    session = speclab.Session(pair, speclab.TokenRecycling(), [7], max_new_tokens=4)
    assert session.step().adaptation.before["table_rows"] == 1


def test_a_carried_table_goes_on_from_prompt_to_prompt():
    pair, strategy = lone(), speclab.TokenRecycling(carry="carried")
    first = speclab.Session(pair, strategy, [1, 2, 3, 4, 5, 6], max_new_tokens=20)
    first.run()
    known = first.steps[-1].adaptation.after["table_rows"]
    second = speclab.Session(pair, strategy, [7], max_new_tokens=8)
    step = second.step()
    assert step.adaptation.before["table_rows"] >= known
    assert next(event for event in step.events if event.kind == "route").values["carry"] == "carried"
    again = speclab.Session(lone(), strategy, [7], max_new_tokens=8)
    assert again.step().adaptation.before["table_rows"] == 1, "another pair carries nothing"


def test_what_a_stopped_iteration_learned_is_not_carried(monkeypatch):
    pair, strategy = lone(), speclab.TokenRecycling(carry="carried")
    session = speclab.Session(pair, strategy, [1, 2, 3, 4, 5, 6], max_new_tokens=20)
    known = session.step().adaptation.after["table_rows"]
    with monkeypatch.context() as patch:
        patch.setattr("speclab.engine.session.record", stopped)
        with pytest.raises(KeyboardInterrupt):
            session.step()
    fresh = speclab.Session(pair, strategy, [1], max_new_tokens=4)
    assert fresh.step().adaptation.before["table_rows"] == known


def stopped(*_):
    raise KeyboardInterrupt


def test_the_sessions_of_a_carried_table_do_not_disturb_each_other():
    """Each learns in a table of its own, and what was carried is a copy."""
    pair, strategy = lone(), speclab.TokenRecycling(carry="carried", node_budget=13)
    first = speclab.Session(pair, strategy, [1, 2, 3], max_new_tokens=20)
    first.step()
    before = first._decoding.drafter.table.ids.copy()
    speclab.Session(pair, strategy, [9, 8, 7, 6, 5], max_new_tokens=20).run()
    assert (first._decoding.drafter.table.ids == before).all()
    trees = [step.tree.token.tolist() for step in (first.step(), first.step())]
    twin = first.fork(at=1)
    assert [step.tree.token.tolist() for step in (twin.step(), twin.step())] == trees
