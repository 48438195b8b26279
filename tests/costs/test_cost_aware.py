"""`budget="auto"`: the target's own text whatever is left out, fresh caches, exact forks, records, no more passes."""

from __future__ import annotations

from importlib import import_module

import pytest
from counted import calls
from pairs import NOISE, PROMPT, own_text, pair_of, run_and_check_caches
from records import assert_consistent, assert_same
from table_runner import mixed_probs, random_probs, table_pair
from test_budget import closed_subsets
from typer.testing import CliRunner

import speclab
from speclab.analysis.whatif import in_force, what_if
from speclab.cli import app
from speclab.costs import measured
from speclab.costs.budget import SLACK, AcceptanceModel
from speclab.costs.curve import Curve, seconds_by_rows
from speclab.costs.drafter import LEVEL, Chooser
from speclab.drafters import from_str, to_str
from speclab.drafters.base import Draft, Strategy
from speclab.errors import NotRecordedError, SettingsError
from speclab.views import proposals
from speclab.views.proposals import drafts_drawing

COSTLY = Curve(name="costly rows", rows=(1, 64), seconds=(0.004, 0.1), prefix=0, rounds=1)
FREE = Curve(name="free rows", rows=(1, 64), seconds=(0.004, 0.0041), prefix=0, rounds=1)
CHEAP = Curve(name="cheap draft", rows=(1, 64), seconds=(0.0001, 0.0002), prefix=0, rounds=1)

TARGET = random_probs(9, seed=3)
"""Next-token distribution of the target, where no model is needed."""

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
        mode="merge", first=speclab.FixedTree(depth=3), second=speclab.TokenRecycling(budget="fixed"), budget="auto"
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
    """Rows of the target are costly, so that trees are cut; nothing is measured."""
    monkeypatch.setattr(measured, "curve_of", lambda runner, **_: COSTLY if _is_target(runner) else CHEAP)


def _is_target(runner: object) -> bool:
    return getattr(runner, "probs", None) is TARGET or runner.model is pair_of("gpt_neox", NOISE).target.model


@pytest.mark.model
@pytest.mark.parametrize("name", AUTO)
def test_the_text_is_the_targets_own_the_caches_are_fresh_and_no_pass_is_added(name):
    pair, strategy = pair_of("gpt_neox", NOISE), AUTO[name]
    session = speclab.Session(pair, strategy, PROMPT, max_new_tokens=24)
    assert run_and_check_caches(session).token_ids == own_text("gpt_neox", 24)
    for step in session.steps:
        assert_consistent(step)
        assert step.budget is not None
        assert step.budget.verified == len(step.tree)
        assert len(step.budget.probabilities) + step.budget.verified_root >= len(step.tree)
    fixed = speclab.Session(pair, strategy.changed(budget="fixed"), PROMPT, max_new_tokens=24).step()
    rebuilds = name == "dynatree as in the paper"
    assert session.steps[0].counts.target_calls == fixed.counts.target_calls == 1 + rebuilds
    assert session.steps[0].counts.draft_calls <= fixed.counts.draft_calls


@pytest.mark.model
def test_costly_rows_cut_trees_and_free_rows_do_not(monkeypatch):
    pair = pair_of("gpt_neox", NOISE)
    strategy = speclab.FixedTree(depth=3, branching=3)
    whole = speclab.generate(pair, strategy, PROMPT, max_new_tokens=24).metrics
    cut = speclab.generate(pair, strategy.changed(budget="auto"), PROMPT, max_new_tokens=24).metrics
    monkeypatch.setattr(measured, "curve_of", lambda runner, **_: FREE if _is_target(runner) else CHEAP)
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


def table_session(strategy: Strategy, **settings: object) -> speclab.Session:
    pair = table_pair(TARGET, mixed_probs(TARGET, random_probs(9, seed=4), 0.3), 9)
    return speclab.Session(pair, strategy, [1, 2, 3], max_new_tokens=30, **settings)


def test_what_is_verified_is_the_best_of_all_subtrees(monkeypatch):
    """By brute force, from the costs and the acceptance before anything was tried: every subtree of the draft."""
    target = Curve(name="target", rows=(1, 64), seconds=(0.004, 0.03), prefix=0, rounds=1)
    monkeypatch.setattr(measured, "curve_of", lambda runner, **_: target if _is_target(runner) else CHEAP)
    strategy = speclab.FixedTree(depth=2, branching=3, budget="auto")
    whole = table_session(strategy.changed(budget="fixed")).step().tree
    probs = AcceptanceModel().path_probs(whole.parent, whole.log_prob, whole.source, verified_root=True)
    drafting = sum(LEVEL + seconds_by_rows(CHEAP, 3)[rows] for rows in (1, 3))

    def rate(kept: set[int]) -> float:
        return sum(probs[node] for node in kept) / (drafting + seconds_by_rows(target, 13)[len(kept)])

    best = sorted(max(closed_subsets(whole.parent.tolist()), key=rate))
    likely = sorted(range(1, len(whole)), key=probs.__getitem__, reverse=True)
    sizes = [{0, *likely[:size]} for size in range(len(whole))]
    best = sorted(max([kept for kept in sizes if rate(kept) >= (1 - SLACK) * rate({*best})], key=len))
    step = table_session(strategy).step()
    assert step.budget.spent == pytest.approx(drafting, rel=0.02)
    assert step.tree.token.tolist() == whole.token[best].tolist()
    assert 1 < len(best) < len(whole) == 13


def test_the_record_says_what_was_left_out_and_why():
    session = table_session(speclab.FixedTree(depth=3, branching=6, budget="auto"))
    step = session.step()
    (chosen,) = [event for event in step.events if event.kind == "budget"]
    dropped = [event for event in step.events if event.kind == "prune"]
    assert chosen.values["verified"] == len(step.tree) < chosen.values["drafted"]
    assert sum(event.values["dropped"] for event in dropped) == chosen.values["drafted"] - len(step.tree)
    assert all(event.reason and event.values["token"] in step.texts for event in dropped)
    assert list(step.budget.probabilities) == sorted(step.budget.probabilities, reverse=True)
    kept = step.budget.probabilities[: len(step.tree) - 1]
    assert chosen.values["expected_tokens"] == pytest.approx(1 + sum(kept))


def test_drafting_ends_where_another_level_cannot_pay():
    """A draft as costly as the target is asked once."""
    fixed = table_session(speclab.LinearSpeculation(draft_tokens=10)).step()
    auto = table_session(speclab.LinearSpeculation(draft_tokens=10, budget="auto"))
    auto._decoding.drafter._drafts = (COSTLY,)
    step = auto.step()
    assert fixed.counts.draft_calls == 10
    assert step.counts.draft_calls == 1
    (stop,) = [event for event in step.events if event.kind == "stop"]
    assert stop.values["gate"] == "cost"


def test_where_drafting_does_not_pay_it_rests_and_is_tried_again():
    """A draft as costly as the target: the step says so, tries become fewer, and the text is the target's own."""
    auto = table_session(speclab.LinearSpeculation(budget="auto"))
    plain = table_session(speclab.Autoregressive())
    auto._decoding.drafter._drafts = (COSTLY,)
    auto.run()
    plain.run()
    assert auto.token_ids == plain.token_ids
    rests = [step for step in auto.steps if step.budget.paused]
    assert len(auto.steps) > len(rests) > len(auto.steps) / 2
    for step in rests:
        assert len(step.tree) == 1
        assert step.counts.draft_calls == 0
        (event,) = step.events
        assert "does not pay" in event.reason
        assert len(what_if(step, in_force(step)).tree) == 1
        assert what_if(step, in_force(step).changed(budget="fixed")).unknown


def test_what_passes_cost_is_measured_before_the_first_token_is_waited_for(monkeypatch):
    """On a clock that only a measurement moves."""
    clock, known = [0.0], set[bool]()

    def measure(runner, *, drafts=False):
        clock[0] += 0 if drafts in known else 100.0
        known.add(drafts)
        return CHEAP if drafts else COSTLY

    monkeypatch.setattr(measured, "curve_of", measure)
    monkeypatch.setattr(import_module("speclab.engine.generate"), "perf_counter", lambda: clock[0])
    pair = table_pair(TARGET, TARGET, 9)
    assert speclab.generate(pair, speclab.FixedTree(budget="auto"), [1, 2, 3], max_new_tokens=4).metrics.ttft == 0
    assert clock == [200.0]


def test_tokens_come_as_they_were_expected():
    """Over many iterations, from what was learned of the text so far."""
    expected = came = 0.0
    for seed in range(1, 9):
        probs = random_probs(9, seed=seed)
        pair = table_pair(TARGET, mixed_probs(TARGET, probs, 0.3), 9)
        run = speclab.Session(
            pair, speclab.FixedTree(budget="auto"), [1, 2, 3], max_new_tokens=60, temperature=1.0, seed=seed
        )
        run.run()
        for step in (step for step in run.steps[10:-1] if not step.budget.paused):
            expected += step.events[-1].values["expected_tokens"]
            came += len(step.committed)
    assert came > 100
    assert expected == pytest.approx(came, rel=0.1)


@pytest.mark.model
def test_of_a_tree_that_was_chosen_and_cut_the_rest_is_called_unverified():
    session = speclab.Session(pair_of("gpt_neox", NOISE), AUTO["two heads, one verified"], PROMPT, max_new_tokens=8)
    session.run()
    cut = [step for step in session.steps if step.proposals and len(step.tree) < len(_chosen(step).tree)]
    assert cut
    for step in cut:
        place = step.proposals.index(_chosen(step))
        read = proposals.reading(step, place)
        assert read.looks.count("drafted") == len(_chosen(step).tree) - len(step.tree)
        assert [int(_chosen(step).tree.token[node]) for node in read.path] == list(step.committed[: len(read.path)])
        assert drafts_drawing(step)


def _chosen(step):
    return next(one for one in step.proposals if one.chosen)


def test_settings_that_adapt_still_do():
    session = table_session(speclab.DynaTree(budget="auto"))
    session.run()
    assert session.steps[-1].settings["base_depth"] != session.strategy.base_depth
    assert session.steps[-1].settings["budget"] == "auto"


@pytest.mark.parametrize("kind", [kind for kind in speclab.strategies().values() if "budget" in kind.model_fields])
def test_who_sets_nothing_gets_a_budget_by_cost_and_who_sets_anything_the_tree_as_set(kind):
    default, shape = kind(), next(name for name in kind.model_fields if name not in {"budget", "candidates"})
    as_set = kind(**{shape: getattr(default, shape)})
    assert default.chooses_budget
    assert not as_set.chooses_budget
    assert as_set == default.changed(budget="fixed")
    for strategy in (default, as_set):
        assert from_str(to_str(strategy)) == strategy


def test_draws_are_not_dropped_by_their_probability():
    with pytest.raises(SettingsError, match="change the distribution"):
        speclab.FixedTree(candidates="independent", budget="auto")
    parts = speclab.DualDraft(first=speclab.DynaTree(), second=speclab.PromptLookup())
    assert not parts.first.chooses_budget, "one budget is chosen, of the tree that is verified"
    drawn = speclab.DualDraft(
        mode="first",
        first=speclab.FixedTree(depth=2, candidates="independent"),
        second=speclab.PromptLookup(budget="fixed"),
        budget="auto",
    )
    step = table_session(drawn, temperature=1.0).step()
    assert step.budget is None
    assert len(step.tree) == 7
    assert step.events[-1].kind == "budget"


def test_a_sampled_text_depends_on_the_seed_alone_and_not_on_what_was_left_out():
    sessions = [table_session(speclab.FixedTree(budget=way), temperature=1.0, seed=5) for way in ("fixed", "auto")]
    for session in sessions:
        session.run()
    assert sessions[0].token_ids == sessions[1].token_ids


@pytest.mark.model
@pytest.mark.parametrize(
    "name", [name for name, one in AUTO.items() if one.needs_draft and name != "model and table as one"]
)
def test_from_its_record_alone_a_step_s_own_settings_give_its_own_tree(name, tmp_path):
    """Costs, what was learned before it and what was left out are all in the step, also once it was saved."""
    run = speclab.Session(pair_of("gpt_neox", NOISE), AUTO[name], PROMPT, max_new_tokens=24)
    run.run()
    trace = speclab.load_trace(run.trace.save(tmp_path / "run.json.gz"))
    assert any(len(step.budget.probabilities) >= len(step.tree) for step in trace.steps)
    for step in trace.steps:
        found = what_if(step, in_force(step))
        assert (found.tree.token.tolist(), found.tree.parent.tolist()) == (
            step.tree.token.tolist(),
            step.tree.parent.tolist(),
        )
        assert (found.accepted, found.unknown, found.settled) == (step.accepted, (), True)


def test_other_settings_than_a_step_s_own_choose_by_its_costs_too():
    step = table_session(speclab.FixedTree(depth=3, branching=4, budget="auto")).step()
    whole = what_if(step, in_force(step).changed(budget="fixed"))
    fewer = what_if(step, in_force(step).changed(branching=1))
    assert len(whole.tree) >= step.events[-1].values["drafted"] > len(step.tree) >= len(fewer.tree)
    fixed = table_session(speclab.FixedTree(depth=2, budget="fixed")).step()
    with pytest.raises(NotRecordedError, match="recorded only of steps"):
        what_if(fixed, in_force(fixed).changed(budget="auto"))


def test_the_choice_takes_little_host_work():
    """Of 60 nodes: a bounded number of calls, whatever the tree."""
    session = table_session(speclab.FixedTree(depth=5, branching=2, node_budget=60, budget="auto"))
    step = table_session(speclab.FixedTree(depth=5, branching=2, node_budget=60)).step()
    chooser = Chooser(session._decoding.drafter._acceptance, COSTLY, (CHEAP,))
    made = calls(lambda: chooser.restricted(Draft(step.tree)))
    assert len(step.tree) == 60
    assert made < 700


def test_a_trace_with_a_choice_is_saved_and_read(tmp_path):
    session = table_session(speclab.FixedTree(depth=3, budget="auto"))
    session.run()
    trace = speclab.load_trace(session.trace.save(tmp_path / "run.json.gz"))
    assert_same(trace, session.trace)
    assert trace.steps[0].budget.rows == COSTLY.rows


@pytest.mark.model
def test_the_command_shows_a_curve_for_every_model(monkeypatch):
    asked = []
    pair = pair_of("gpt_neox", NOISE)
    monkeypatch.setitem(vars(speclab), "load_pair", lambda *_, **__: pair)

    def known(runner, *, again, report, **_):
        asked.append((runner.name, again))
        report(1, 2)
        return COSTLY

    monkeypatch.setattr(measured, "curve_of", known)
    done = CliRunner().invoke(app, ["costs", "--again"])
    assert done.exit_code == 0, done.output
    assert [again for _, again in asked] == [True] * (2 + len(pair.heads))
    assert "100.00" in done.output
    assert "behind 0 tokens" in done.output
