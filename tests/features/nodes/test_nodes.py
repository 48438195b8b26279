"""Every drafted node as a row: the columns against a plain loop over the records."""

import numpy as np
import pytest
from support.every_strategy import PROBS, VOCAB, finished
from support.table_runner import table_pair

import speclab
from speclab import views
from speclab.features.nodes import DTYPES, calibration

PLAIN = speclab.Autoregressive()
DYNATREE = speclab.DynaTree(base_depth=3, history="iteration")
DRAFTED_ROOT = speclab.DynaTree(base_depth=3, root="drafted")
TREE = speclab.FixedTree(depth=3, branching=2)
RUNS = {
    "dynatree": (DYNATREE, {}),
    "drafted root": (DRAFTED_ROOT, {}),
    "sample and match": (TREE, {"temperature": 1.0}),
    "rejection": (TREE.changed(candidates="without_replacement"), {"temperature": 1.2}),
    "cut short": (DYNATREE, {"max_new_tokens": 5}),
}


def by_hand(trace):
    """What each drafted node went through, from the path and the rule alone."""
    rows = []
    for step in trace.steps:
        tree = step.tree
        before_tree = [*trace.prompt_ids, *trace.token_ids][: step.prefix_length]
        accepted = set(step.accepted)
        verified = step.root_choice is None
        path = [0, *step.accepted] if verified else list(step.accepted)
        for node in range(int(verified), len(tree)):
            parent = int(tree.parent[node])
            above = list(tree.path(node))[:-1]
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
                "right": int(tree.token[node]) == np.argmax(PROBS((*before_tree, *tree.token[above].tolist()))),
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
        if "temperature" in settings:
            assert own.right.isna().all() or "draws" not in trace.steps[0].rule
            own = own.assign(right=[row["right"] for row in expected])  # of draws, only on the path
        for column in expected[0]:
            values = np.array([row[column] for row in expected])
            if values.dtype.kind == "f":
                np.testing.assert_allclose(own[column].to_numpy(), values, rtol=1e-6)
            else:
                assert own[column].tolist() == values.tolist(), column


def test_a_draft_that_is_the_target_is_calibrated_where_the_target_samples_once():
    pair = table_pair(PROBS, PROBS, VOCAB)
    runs = [finished(TREE, pair=pair, temperature=1.0, seed=seed) for seed in range(12)]
    frame = speclab.nodes(runs)
    assert sorted(frame.run.unique()) == list(range(12))
    assert frame[frame.tried].right.equals(frame[frame.tried].accepted.astype("boolean"))
    bins = calibration(frame.assign(bin=(frame.draft_prob * 4).astype(int)), "bin")
    bins["gap"] = (bins.right - bins.stated).abs() * bins["count"]
    for _, side in bins.groupby("parent_accepted"):
        assert side.gap.sum() / side["count"].sum() < 0.05, "on the accepted path and off it"


def test_a_picture_of_marginals_shows_calibration_on_the_accepted_path_and_off_it():
    run = finished(TREE, max_new_tokens=200)
    frame = speclab.nodes(run)
    firsts = calibration(frame[frame["rank"] == 1], "depth")
    shown = [[*each.y] for each in views.marginals({"a tree": [run]}).data]
    for side in (True, False):
        for column in ("right", "stated"):
            assert firsts[firsts.parent_accepted == side][column].tolist() in shown


def test_ranks_are_counted_on_the_targets_path_with_what_the_tree_had():
    runs = [finished(strategy, max_new_tokens=60) for strategy in (TREE, DRAFTED_ROOT)]
    for run in runs:
        counted = {}
        text = [*run.prompt_ids, *run.token_ids]
        for step in run.steps:
            drafted_root = step.root_choice is not None
            end = step.prefix_length + (not drafted_root) + len(step.committed)
            for node, record in enumerate(step.nodes):
                depth = int(step.tree.depth[node]) + 1
                reached = record.verdict in ("root", "accepted") and record.draft_top
                if reached and step.prefix_length + depth < end:
                    token = text[step.prefix_length + depth]
                    top = [token for token, _ in record.draft_top]
                    rank = top.index(token) if token in top else 8
                    had = token in step.tree.token[list(step.tree.children[node])]
                    counted.setdefault(depth + drafted_root, []).append((rank, had))
        figure = views.ranks(run)
        for column, (depth, found) in enumerate(sorted(counted.items())):
            shares = [sum(each == rank for each, _ in found) / len(found) for rank in range(9)]
            assert [row[column] for row in figure.data[0].z] == pytest.approx(shares)
            covered = sum(had for _, had in found) / len(found)
            assert (
                figure.layout.xaxis.ticktext[column] == f"{depth}<br>{covered:.0%} of {len(found)}"
            )
    depths = [{*views.ranks(each).data[0].x} for each in (*runs, runs)]
    assert depths[0] | depths[1] == depths[2]


def test_without_drafts_the_columns_are_there():
    for runs in ([], finished(PLAIN)):
        frame = speclab.nodes(runs)
        assert len(frame) == 0
        assert list(frame.columns) == list(DTYPES)
