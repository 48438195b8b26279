"""Every drafted node as a row: the columns against a plain loop over the records."""

from __future__ import annotations

import numpy as np
import pytest
from support.refusals import refused
from support.sessions import STRATEGIES, TARGET, VOCAB, finished, pair_of
from support.table_runner import random_probs

import speclab
from speclab import views
from speclab.analysis.nodes import COLUMNS, calibration, token_kind
from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.errors import NotRecordedError, SettingsError
from speclab.tree import DraftTree

RUNS = {
    "dynatree": (STRATEGIES["dynatree"], {}),
    "drafted root": (STRATEGIES["drafted, gathered"], {}),
    "sample and match": (STRATEGIES["tree"], {"temperature": 1.0}),
    "rejection": (
        STRATEGIES["tree"].changed(candidates="without_replacement"),
        {"temperature": 1.2},
    ),
    "cut short": (STRATEGIES["dynatree"], {"max_new_tokens": 3}),
}


def by_hand(trace: speclab.Trace) -> list[dict[str, object]]:
    """What each drafted node went through, from the path and the rule alone."""
    rows = []
    for step in trace.steps:
        tree = step.tree
        accepted = set(step.accepted)
        verified = step.root_choice is None
        path = [0, *step.accepted] if verified else list(step.accepted)
        for node in range(int(verified), len(tree)):
            parent = int(tree.parent[node])
            siblings = list(tree.children[parent]) if parent >= 0 else [node]
            reached = parent < 0 or parent in path
            ended = reached and step.bonus is None and parent == (path[-1] if path else None)
            before = siblings[: siblings.index(node)]
            turn = "draws" not in step.rule or not any(other in accepted for other in before)
            rows.append({
                "iteration": step.index, "node": node, "depth": len(tree.path(node)) - verified,
                "rank": siblings.index(node) + 1, "parent_accepted": reached, "accepted": node in accepted,
                "tried": reached and turn and not ended, "source": tree.source[node], "rule": step.rule,
                "draft_prob": np.exp(tree.log_prob[node]), "token": tree.token[node],
                "path_prob": np.exp(tree.log_prob[list(tree.path(node))].sum()),
                "entropy": step.nodes[parent].entropy if parent >= 0 else np.nan,
                "target_prob": step.nodes[node].target_prob,
            })  # fmt: skip
    return rows


@pytest.mark.parametrize("name", RUNS)
def test_columns_are_those_of_a_plain_loop(name):
    strategy, settings = RUNS[name]
    traces = [finished(strategy, **settings, seed=seed).trace for seed in (0, 1)]
    frame = speclab.nodes(traces)
    assert set(frame.strategy) == {traces[0].settings["strategy"]}
    for number, trace in enumerate(traces):
        own = frame[frame.run == number]
        expected = by_hand(trace)
        assert len(own) == len(expected) == sum(step.counts.drafted for step in trace.steps)
        for column in expected[0]:
            values = np.array([row[column] for row in expected])
            if values.dtype.kind == "f":
                np.testing.assert_allclose(own[column].to_numpy(), values, rtol=1e-6)
            else:
                assert own[column].tolist() == values.tolist(), column


def test_a_draft_that_is_the_target_is_calibrated_where_the_target_samples_once():
    pair = pair_of(TARGET, TARGET)
    runs = [
        finished(STRATEGIES["tree"], pair=pair, temperature=1.0, seed=seed) for seed in range(12)
    ]
    frame = speclab.nodes(runs)
    assert sorted(frame.run.unique()) == list(range(12))
    assert frame[frame.tried].right.equals(frame[frame.tried].accepted.astype("boolean"))
    bins = calibration(frame.assign(bin=(frame.draft_prob * 4).astype(int)), "bin")
    bins["gap"] = (bins.right - bins.stated).abs() * bins["count"]
    for _, side in bins.groupby("parent_accepted"):
        assert side.gap.sum() / side["count"].sum() < 0.05, "on the accepted path and off it"


@pytest.mark.parametrize(
    "name", [name for name, (_, settings) in RUNS.items() if "temperature" not in settings]
)
def test_right_is_what_the_target_chooses_on_and_off_the_accepted_path(name):
    strategy, settings = RUNS[name]
    trace = finished(strategy, **settings).trace
    text = [*trace.prompt_ids, *trace.token_ids]
    expected = []
    for step in trace.steps:
        verified = step.root_choice is None
        for node in range(int(verified), len(step.tree)):
            above = [int(step.tree.token[each]) for each in step.tree.path(node)[:-1]]
            choice = np.argmax(TARGET((*text[: step.prefix_length], *above)))
            expected.append(bool(step.tree.token[node] == choice))
    frame = speclab.nodes(trace)
    assert frame.right.tolist() == expected
    assert {*frame.parent_accepted} == {True, False} or name == "cut short"


SHARP = random_probs(VOCAB, 3, low=3, high=6)


class _Marginals(Strategy):
    """What a block head drafts: the two most probable tokens of each depth, with no regard to the path."""

    def drafter(self, pair):
        return MarginalsDrafter(self)


class MarginalsDrafter(Drafter):
    def draft(self, context: Context) -> Draft:
        if context.max_depth < 2:
            return Draft(DraftTree.root(context.tokens[-1]))
        text = tuple(context.tokens)
        first = np.asarray(SHARP(text))
        second = first @ [SHARP((*text, token)) for token in range(VOCAB)]
        above = first.argsort()[:-3:-1]
        below = second.argsort()[:-3:-1]
        tokens = [text[-1], *above, *below, *below]
        probs = [1, *first[above], *second[below], *second[below]]
        return Draft(DraftTree.of(tokens, [-1, 0, 0, 1, 1, 2, 2], np.log(probs), "block"))


def test_a_marginal_comes_true_on_the_accepted_path_and_not_off_it():
    pair = pair_of(SHARP, None)
    runs = [finished(_Marginals(), pair=pair, temperature=1.0, seed=seed) for seed in range(15)]
    frame = speclab.nodes(runs)
    found = calibration(frame, "depth").set_index(["depth", "parent_accepted"])
    (first, on, off) = (found.loc[key] for key in ((1, True), (2, True), (2, False)))
    assert abs(first.right - first.stated) < 0.04, "the first depth knows its parent"
    assert on.right > on.stated
    assert off.right < off.stated - 0.1

    made = views.marginals(
        {"a block": runs, "a tree": [finished(STRATEGIES["tree"])]}, theme="dark"
    )
    firsts = calibration(frame[frame["rank"] == 1], "depth")
    below = [each for each in made.data if each.xaxis == "x3"]
    assert [[*each.y] for each in below] == [
        firsts[firsts.parent_accepted == side][column].tolist()
        for side in (True, False)
        for column in ("right", "stated")
    ]
    with refused(NotRecordedError, "plain", "nothing was drafted"):
        views.marginals({"plain": [finished(STRATEGIES["plain"])]})


def test_where_candidates_are_drawn_nothing_says_what_is_right_off_the_path():
    strategy, settings = RUNS["rejection"]
    assert speclab.nodes(finished(strategy, **settings)).right.isna().all()


def test_without_drafts_the_columns_are_there_and_anything_else_is_refused():
    for runs in ([], finished(STRATEGIES["plain"])):
        frame = speclab.nodes(runs)
        assert len(frame) == 0
        assert list(frame.columns) == list(COLUMNS)
    for wrong in (["run.json.gz"], "run.json.gz", None, finished(STRATEGIES["plain"]).steps[0]):
        with refused(SettingsError, "got", "load_trace"):
            speclab.nodes(wrong)


def test_kinds_of_tokens():
    texts = [" the", "ing", " 12", "...\n", "\n\n", "<|im_end|>", "<0xE2>"]
    kinds = [
        "word start",
        "continuation",
        "digits",
        "punctuation",
        "white space",
        "special",
        "other",
    ]
    assert [token_kind(text) for text in texts] == kinds
