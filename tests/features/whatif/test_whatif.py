"""Trees grown again from the record, compared with trees that were really drafted."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.every_strategy import PROMPT, finished
from support.records import paths_of
from support.refusals import refused
from support.table_runner import mixed_probs, random_probs, table_pair
from support.variants import VARIANTS, dynatrees

import speclab
from speclab.drafters import in_force
from speclab.drafters.grow import GrownStrategy
from speclab.engine.session import Session
from speclab.errors import NotRecordedError, SettingsError
from speclab.features.whatif import what_if
from speclab.settings import SessionSettings

EAGLE = speclab.DraftHead(node_budget=12, depth=4, children=3)
OWN = {
    name: variant for name, variant in VARIANTS.items() if isinstance(variant, GrownStrategy)
} | {"history": speclab.DynaTree(low_confidence=0.7, history="iteration")}
VOCAB = 24
DISTRIBUTIONS = random_probs(VOCAB, 3, low=0.5, high=2.5)
NEAR = mixed_probs(DISTRIBUTIONS, random_probs(VOCAB, 4), 0.15)
WIDE = speclab.DynaTree(
    stop_probability=0, deep_probability=0, prune_probability=0, low_confidence=0.9, high_confidence=0.95,
    base_depth=4, max_depth=4, node_budget=256,
)  # fmt: skip


def session(strategy, **chosen):
    return Session(
        table_pair(DISTRIBUTIONS, NEAR, VOCAB),
        strategy,
        PROMPT,
        **({"max_new_tokens": 16} | chosen),
    )


def columns(tree):
    return tree.token.tolist(), tree.parent.tolist(), tree.log_prob.tolist()


def forked(run, step, strategy):
    """What a fork before this step decodes."""
    return run.fork(at=step.index, strategy=strategy).step()


def assert_agrees(found, real):
    """Wherever the record says that it suffices, it was right."""
    if found.unknown:
        # else others may have taken their places
        if len(real.tree) < int(real.settings["node_budget"]):
            assert paths_of(found.tree).keys() <= paths_of(real.tree).keys()
            assert len(found.accepted) <= len(real.accepted)
        return
    assert columns(found.tree)[:2] == columns(real.tree)[:2]
    assert found.tree.log_prob.tolist() == pytest.approx(real.tree.log_prob.tolist(), abs=1e-5)
    assert found.events == real.events
    assert real.accepted[: len(found.accepted)] == found.accepted
    if found.settled:
        assert found.accepted == real.accepted
        assert found.bonus in {real.bonus, None}


@pytest.mark.wide
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_steps_own_settings_give_its_own_tree(name, temperature):
    """Adapted thresholds, too, as they were at the step."""
    run = session(OWN[name], temperature=temperature)
    run.run()
    for step in run.steps:
        found = what_if(step, in_force(step), run.settings)
        assert columns(found.tree) == columns(step.tree)
        assert (found.events, found.accepted, found.bonus) == (
            step.events,
            step.accepted,
            step.bonus,
        )
        assert (found.unknown, found.settled) == ((), True)
        assert found.recorded == tuple(range(len(step.tree)))


@settings(max_examples=25)
@given(first=dynatrees(history="off"), second=dynatrees(history="off"))
def test_other_settings_give_the_tree_of_a_fork_wherever_the_record_suffices(first, second):
    run = session(first)
    for step in [run.step(), run.step()]:
        if first.root != second.root:
            with pytest.raises(NotRecordedError, match="another token"):
                what_if(step, second)
            continue
        assert_agrees(what_if(step, second), forked(run, step, second))


@pytest.mark.parametrize(
    "changes",
    [
        {"node_budget": 9},
        {"base_depth": 2, "max_depth": 2},
        {"prune_probability": 0.05},
        {"min_branches": 1, "max_branches": 1},
    ],
    ids=str,
)
def test_what_only_takes_away_is_always_known(changes):
    run = session(WIDE)
    step = run.step()
    found = what_if(step, WIDE.changed(**changes))
    assert len(found.tree) < len(step.tree)
    assert (found.unknown, found.settled) == ((), True)
    assert_agrees(found, forked(run, step, WIDE.changed(**changes)))


@settings(max_examples=20)
@example(budget=6, depth=4, children=3)
@given(budget=st.integers(1, 20), depth=st.integers(1, 6), children=st.integers(1, 5))
def test_the_best_of_all_candidates_are_chosen_again_from_the_record(budget, depth, children):
    run = session(EAGLE)
    step = run.step()
    other = speclab.DraftHead(node_budget=budget, depth=depth, children=children)
    found = what_if(step, other)
    if budget <= 12 and (depth, children) == (4, 3):
        assert found.unknown == ()
    if not found.unknown:
        assert_agrees(found, forked(run, step, other))
    with pytest.raises(NotRecordedError, match="a different draft"):
        what_if(step, other.changed(head=1))


def test_what_the_record_lacks_is_named():
    run = session(speclab.FixedTree(depth=2, branching=2))
    step = run.step()
    deeper = what_if(step, speclab.FixedTree(depth=3, branching=2))
    assert columns(deeper.tree) == columns(step.tree)
    assert deeper.unknown == (3, 4, 5, 6)
    wider = what_if(step, speclab.FixedTree(depth=1, branching=12))
    assert len(wider.tree) == 1 + len(step.nodes[0].draft_top) == 9
    assert wider.unknown == (0,)
    full = session(speclab.FixedTree(depth=1, branching=8)).step()
    assert what_if(full, speclab.FixedTree(depth=1, branching=12)).unknown == (0,)


def test_where_the_path_goes_on_beyond_the_record_it_is_not_settled():
    """A chain cut short was accepted whole: what follows with more room is not recorded."""
    pair = table_pair(DISTRIBUTIONS, DISTRIBUTIONS, VOCAB)
    step = Session(pair, speclab.LinearSpeculation(draft_tokens=3), PROMPT).step()
    assert len(step.accepted) == 3
    longer = what_if(step, speclab.LinearSpeculation(draft_tokens=5))
    assert (longer.accepted, longer.unknown, longer.settled) == ((1, 2, 3), (3,), False)
    shorter = what_if(step, speclab.LinearSpeculation(draft_tokens=2))
    assert (shorter.accepted, shorter.settled, shorter.bonus) == ((1, 2), True, step.tree.token[3])


def test_a_new_leaf_that_the_target_chose_is_accepted_and_what_follows_it_is_unknown():
    run = finished(speclab.FixedTree(depth=1, branching=1))
    found = [
        (step, what_if(step, speclab.FixedTree(depth=1, branching=8)))
        for step in run.steps
        if not step.accepted
    ]
    assert found
    for step, other in found:
        assert other.tree.token[list(other.accepted)].tolist() == [step.bonus]
        assert (other.settled, other.bonus, other.recorded[other.accepted[0]]) == (True, None, None)


def refusal(step, strategy, *words):
    with refused(NotRecordedError, *words):
        what_if(step, strategy, SessionSettings(temperature=1.0))


def test_sampled_candidates_are_refused():
    drawing = speclab.FixedTree(depth=2, branching=2, candidates="independent")
    refusal(session(speclab.FixedTree(), temperature=1.0).step(), drawing, "at random")
    refusal(session(drawing, temperature=1.0).step(), speclab.FixedTree(), "at random")


@pytest.mark.parametrize(
    "strategy", [speclab.PromptLookup(), speclab.Goose(), speclab.Lookahead()], ids=repr
)
def test_what_no_draft_model_grew_alone_is_refused_both_ways(strategy):
    """Its record holds no answers of the draft model, so a tree from it would be a guess."""
    name = type(strategy).__name__
    step = session(strategy).step()
    for other in (strategy, speclab.LinearSpeculation(), speclab.DynaTree(node_budget=8)):
        refusal(step, other, name)
    refusal(session(speclab.FixedTree(depth=2)).step(), strategy, name)


def test_a_measured_budget_is_the_recorded_one():
    run = session(speclab.DynaTree(stop_probability=0, prune_probability=0))
    step = run.step()
    assert step.settings["node_budget"] == len(step.tree) == 9
    found = what_if(step, run.strategy)
    assert (columns(found.tree), found.unknown) == (columns(step.tree), ())
    refusal(session(speclab.LinearSpeculation()).step(), run.strategy, "node_budget")


@pytest.mark.parametrize("value", ["[", "(1", "{}{", "[x]"])
def test_a_foreign_setting_that_is_no_value_is_refused_in_one_sentence(value):
    step = session(EAGLE).step()
    foreign = replace(step, settings={**step.settings, "depth": value})
    with refused(SettingsError, "depth"):
        what_if(foreign, EAGLE)
