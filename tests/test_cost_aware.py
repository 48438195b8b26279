"""`budget="auto"`: the target's own text whatever is left out, fresh caches, exact forks, records, no more passes."""

from __future__ import annotations

import numpy as np
import pytest
from counted import calls
from records import assert_consistent, assert_same
from table_runner import mixed_law, random_law, table_pair
from test_equality import NOISE, PROMPT, own_text, pair_of, run_and_check_caches
from typer.testing import CliRunner

import speclab
from speclab.analysis.whatif import in_force, what_if
from speclab.cli import app
from speclab.costs import drafter as cost_aware
from speclab.costs import measured as cost_curves
from speclab.costs.curve import Curve
from speclab.drafters.base import Strategy
from speclab.errors import NotRecordedError, SettingsError
from speclab.views import drafts
from speclab.views.drafts_page import drafts_html

DEAR = Curve(name="dear rows", rows=(1, 64), seconds=(0.004, 0.1), prefix=0, rounds=1)
FREE = Curve(name="free rows", rows=(1, 64), seconds=(0.004, 0.0041), prefix=0, rounds=1)
CHEAP = Curve(name="cheap draft", rows=(1, 64), seconds=(0.0001, 0.0002), prefix=0, rounds=1)

LAW = random_law(9, seed=3)
"""Of the target, where no model is needed."""

AUTO: dict[str, Strategy] = {
    "chain": speclab.LinearSpeculation(draft_tokens=8, budget="auto"),
    "fixed tree": speclab.FixedTree(depth=3, budget="auto"),
    "dynatree": speclab.DynaTree(low_confidence=0.9, high_confidence=0.99, stop_probability=0, budget="auto"),
    "dynatree as in the paper": speclab.DynaTree(root="drafted", commit="rebuild", drafting="node", budget="auto"),
    "draft head": speclab.DraftHead(node_budget=16, depth=3, children=4, budget="auto"),
    "two heads, one verified": speclab.DualDraft(node_budget=12, depth=3, children=4, budget="auto"),
    "two heads as one": speclab.DualDraft(mode="merge", node_budget=12, depth=3, children=4, budget="auto"),
    "one of two": speclab.DualDraft(mode="second", node_budget=12, depth=3, children=4, budget="auto"),
    "model and table as one": speclab.DualDraft(
        mode="merge", first=speclab.FixedTree(depth=3), second=speclab.TokenRecycling(), budget="auto"
    ),
    "prompt lookup": speclab.PromptLookup(budget="auto"),
    "table": speclab.TokenRecycling(budget="auto"),
    "uniform": speclab.IsotropicTree(budget="auto"),
    "goose": speclab.Goose(budget="auto"),
    "sequoia": speclab.SequoiaTree(source="draft", node_budget=20, budget="auto"),
    "retrieval": speclab.Retrieval(budget="auto"),
}


@pytest.fixture(autouse=True)
def made_costs(monkeypatch):
    """Rows of the target are dear, so that trees are cut; nothing is measured."""
    monkeypatch.setattr(cost_curves, "curve_of", lambda runner: DEAR if _is_target(runner) else CHEAP)


def _is_target(runner: object) -> bool:
    return getattr(runner, "law", None) is LAW or runner.model is pair_of("gpt_neox", NOISE).target.model


@pytest.mark.model
@pytest.mark.parametrize("strategy", AUTO.values(), ids=AUTO)
def test_the_text_is_the_targets_own_and_the_caches_are_fresh(strategy):
    session = speclab.Session(pair_of("gpt_neox", NOISE), strategy, PROMPT, max_new_tokens=24)
    assert run_and_check_caches(session).token_ids == own_text("gpt_neox", 24)
    for step in session.steps:
        assert_consistent(step)
        assert step.budget is not None
        assert step.budget.verified == len(step.tree)
        assert len(step.budget.probabilities) + step.budget.verified_root >= len(step.tree)


@pytest.mark.model
def test_dear_rows_cut_trees_and_free_rows_do_not(monkeypatch):
    pair = pair_of("gpt_neox", NOISE)
    strategy = speclab.FixedTree(depth=3, branching=3)
    whole = speclab.generate(pair, strategy, PROMPT, max_new_tokens=24).metrics
    cut = speclab.generate(pair, strategy.changed(budget="auto"), PROMPT, max_new_tokens=24).metrics
    monkeypatch.setattr(cost_curves, "curve_of", lambda runner: FREE if _is_target(runner) else CHEAP)
    free = speclab.generate(pair, strategy.changed(budget="auto"), PROMPT, max_new_tokens=24).metrics
    assert cut.counts.drafted < free.counts.drafted <= whole.counts.drafted


@pytest.mark.model
@pytest.mark.parametrize("name", ["dynatree", "goose", "two heads, one verified"])
def test_a_fork_goes_on_as_the_session_did(name):
    """What was learned of costs and outcomes is part of what a fork takes over, and steps back come to it."""
    session = speclab.Session(pair_of("gpt_neox", NOISE), AUTO[name], PROMPT, max_new_tokens=32)
    session.run()
    at = len(session.steps) // 2
    twin = session.fork(at=at)
    twin.run()
    for mine, other in zip(session.steps[at:], twin.steps[at:], strict=True):
        assert mine.tree.token.tolist() == other.tree.token.tolist()
        assert mine.tree.parent.tolist() == other.tree.parent.tolist()
        assert (mine.budget.verified, mine.budget.spent) == (other.budget.verified, other.budget.spent)
        assert mine.budget.probabilities == pytest.approx(other.budget.probabilities, abs=1e-4)
        assert [event.kind for event in mine.events] == [event.kind for event in other.events]


@pytest.mark.model
@pytest.mark.parametrize("name", AUTO)
def test_an_iteration_makes_one_target_pass_and_no_more_draft_passes(name):
    pair, strategy = pair_of("gpt_neox", NOISE), AUTO[name]
    rebuilds = name == "dynatree as in the paper"
    fixed = speclab.Session(pair, strategy.changed(budget="fixed"), PROMPT, max_new_tokens=16)
    auto = speclab.Session(pair, strategy, PROMPT, max_new_tokens=16)
    first, second = fixed.step(), auto.step()
    assert second.counts.target_calls == first.counts.target_calls == 1 + rebuilds
    assert second.counts.draft_calls <= first.counts.draft_calls


def table_session(strategy: Strategy, **settings: object) -> speclab.Session:
    pair = table_pair(LAW, mixed_law(LAW, random_law(9, seed=4), 0.3), 9)
    return speclab.Session(pair, strategy, [1, 2, 3], max_new_tokens=30, **settings)


def test_what_was_left_out_is_told_and_why():
    session = table_session(speclab.FixedTree(depth=3, branching=6, budget="auto"))
    step = session.step()
    (chosen,) = [event for event in step.events if event.kind == "budget"]
    dropped = [event for event in step.events if event.kind == "prune"]
    assert chosen.values["verified"] == len(step.tree) < chosen.values["drafted"]
    assert sum(event.values["dropped"] for event in dropped) == chosen.values["drafted"] - len(step.tree)
    assert all("not worth its time" in event.reason for event in dropped)
    assert all(event.values["token"] in step.texts for event in dropped)
    likely = sorted(step.budget.probabilities, reverse=True)
    assert list(step.budget.probabilities) == likely
    kept = likely[: len(step.tree) - 1]
    assert chosen.values["expected_tokens"] == pytest.approx(1 + sum(kept))


def test_drafting_ends_where_another_level_cannot_pay():
    """A draft as dear as the target is asked once."""
    fixed = table_session(speclab.LinearSpeculation(draft_tokens=10)).step()
    auto = table_session(speclab.LinearSpeculation(draft_tokens=10, budget="auto"))
    auto._decoding.drafter._drafts = (DEAR,)
    step = auto.step()
    assert fixed.counts.draft_calls == 10
    assert step.counts.draft_calls == 1
    (stop,) = [event for event in step.events if event.kind == "stop"]
    assert stop.values["gate"] == "cost"
    assert "tokens/s" in stop.reason


@pytest.mark.model
def test_of_a_tree_that_was_chosen_and_cut_the_rest_is_called_unverified():
    session = speclab.Session(pair_of("gpt_neox", NOISE), AUTO["two heads, one verified"], PROMPT, max_new_tokens=8)
    session.run()
    cut = [step for step in session.steps if len(step.tree) < len(_chosen(step).tree)]
    assert cut
    for step in cut:
        place = step.proposals.index(_chosen(step))
        read = drafts.reading(step, place)
        assert read.looks.count("drafted") == len(_chosen(step).tree) - len(step.tree)
        assert [int(_chosen(step).tree.token[node]) for node in read.path] == list(step.committed[: len(read.path)])
        assert drafts_html(step)


def _chosen(step):
    return next(one for one in step.proposals if one.chosen)


def test_settings_that_adapt_still_do():
    session = table_session(speclab.DynaTree(budget="auto"))
    session.run()
    assert session.steps[-1].settings["base_depth"] != session.strategy.base_depth
    assert session.steps[-1].settings["budget"] == "auto"


def test_draws_are_not_dropped_by_their_probability():
    with pytest.raises(SettingsError, match="bend the distribution"):
        speclab.FixedTree(candidates="independent", budget="auto")
    with pytest.raises(SettingsError, match="budget='auto' of DualDraft"):
        speclab.DualDraft(first=speclab.DynaTree(budget="auto"), second=speclab.PromptLookup())
    drawn = speclab.DualDraft(
        mode="first",
        first=speclab.FixedTree(depth=2, candidates="independent"),
        second=speclab.PromptLookup(),
        budget="auto",
    )
    step = table_session(drawn, temperature=1.0).step()
    assert step.budget is None
    assert len(step.tree) == 7
    assert "bend their law" in step.events[-1].reason


def test_a_sampled_run_goes_on_with_the_same_law_of_random_numbers():
    """The text depends on the seed alone, not on what was left out."""
    texts = [table_session(speclab.FixedTree(budget=budget), temperature=1.0, seed=5) for budget in ("fixed", "auto")]
    for session in texts:
        session.run()
    assert texts[0].token_ids == texts[1].token_ids


def test_a_what_if_says_that_it_cannot_know():
    step = table_session(speclab.FixedTree(depth=2, budget="auto")).step()
    with pytest.raises(NotRecordedError, match="earlier outcomes"):
        what_if(step, in_force(step))
    assert what_if(step, in_force(step).changed(budget="fixed")).unknown


def test_the_choice_takes_little_host_work():
    """Of 60 nodes: a bounded number of calls, whatever the tree."""
    session = table_session(speclab.FixedTree(depth=5, branching=2, node_budget=60, budget="auto"))
    drafter = session._decoding.drafter
    step = table_session(speclab.FixedTree(depth=5, branching=2, node_budget=60)).step()
    draft = cost_aware.Draft(step.tree)
    made = calls(lambda: drafter._trimmed(draft, 0.0))
    assert len(step.tree) == 60
    assert made < 700


def test_a_trace_with_a_choice_is_saved_and_read(tmp_path):
    session = table_session(speclab.FixedTree(depth=3, budget="auto"))
    session.run()
    trace = speclab.load_trace(session.trace.save(tmp_path / "run.json.gz"))
    assert_same(trace, session.trace)
    assert trace.steps[0].budget.rows == DEAR.rows


def test_seconds_reach_as_far_as_a_tree():
    assert len(cost_aware._seconds(DEAR, 5000)) > 5000
    assert np.isfinite(cost_aware._seconds(DEAR, 5000)).all()


@pytest.mark.model
def test_the_command_shows_a_curve_for_every_model(monkeypatch):
    asked = []
    pair = pair_of("gpt_neox", NOISE)
    monkeypatch.setitem(vars(speclab), "load_pair", lambda *_, **__: pair)

    def known(runner, *, again, report):
        asked.append((runner.name, again))
        report(1, 2)
        return DEAR

    monkeypatch.setattr(cost_curves, "curve_of", known)
    done = CliRunner().invoke(app, ["costs", "--again"])
    assert done.exit_code == 0, done.output
    assert [again for _, again in asked] == [True] * (2 + len(pair.heads))
    assert "100.00" in done.output
    assert "behind 0 tokens" in done.output
