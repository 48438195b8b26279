"""Every drafted node of many runs: columns against a plain loop over records, cells, calibration, parquet."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_run import made_run
from pyarrow import parquet
from refusals import refused
from sessions import STRATEGIES, TARGET, finished, pair_of

import speclab
from speclab.analysis.aggregate import DIMENSIONS, joined, token_kind, wilson
from speclab.errors import SettingsError, SpeclabError, TraceError
from speclab.trace.records import Trace

RUNS = {
    **{name: (strategy, {}) for name, strategy in STRATEGIES.items()},
    "sample and match": (STRATEGIES["tree"], {"temperature": 1.0}),
    "rejection, independent": (STRATEGIES["tree"].changed(candidates="independent"), {"temperature": 1.0}),
    "rejection": (STRATEGIES["tree"].changed(candidates="without_replacement"), {"temperature": 1.2}),
    "typical": (STRATEGIES["tree"], {"temperature": 1.0, "acceptance": "typical"}),
    "cut short": (STRATEGIES["dynatree"], {"max_new_tokens": 3}),
}


@cache
def run(name: str) -> Trace:
    strategy, given_ = RUNS[name]
    return finished(strategy, **given_).trace


def by_hand(trace: Trace) -> list[dict[str, object]]:
    """What each drafted node went through, from the path and the rule alone."""
    found = []
    for step in trace.steps:
        tree, accepted = step.tree, set(step.accepted)
        path = list(step.accepted) if step.root_choice is not None else [0, *step.accepted]
        for node in range(len(tree)):
            parent, verified = int(tree.parent[node]), step.root_choice is None
            if parent < 0 and verified:
                continue
            siblings = list(tree.children[parent]) if parent >= 0 else [node]
            reached = parent < 0 or parent in path
            ended = reached and step.bonus is None and parent == (path[-1] if path else None)
            turn = "draws" not in step.rule or not any(other in accepted for other in siblings[: siblings.index(node)])
            found.append({
                "iteration": step.index, "node": node, "depth": len(tree.path(node)) - verified,
                "rank": siblings.index(node) + 1, "reached": reached, "accepted": node in accepted,
                "tried": reached and turn and not ended, "source": tree.source[node], "rule": step.rule,
                "draft_prob": np.exp(tree.log_prob[node]),
                "path_prob": np.exp(tree.log_prob[list(tree.path(node))].sum()),
                "entropy": step.nodes[parent].entropy if parent >= 0 else np.nan,
                "target_prob": step.nodes[node].target_prob,
            })  # fmt: skip
    return found


@pytest.mark.parametrize("name", RUNS)
def test_columns_are_those_of_a_plain_loop(name):
    trace = run(name)
    found, due = speclab.aggregate(trace), by_hand(trace)
    assert len(found) == len(due) == sum(step.counts.drafted for step in trace.steps)
    for column in due[0] if due else ():
        values = getattr(found, column)
        wanted = np.array([row[column] for row in due])
        same = np.testing.assert_allclose if wanted.dtype.kind == "f" else np.testing.assert_array_equal
        same(values, wanted)
    assert found.accepted.sum() == sum(step.counts.accepted for step in trace.steps)
    assert not (found.accepted & ~found.tried).any()
    assert not (found.tried & ~found.reached).any()
    assert set(found.strategy.tolist()) <= {trace.settings["strategy"]}


def test_one_choice_judges_all_children_and_a_trial_those_before_the_accepted_one():
    """At most one child of a place is accepted; only by rejection are siblings left untried."""
    for name in RUNS:
        found = speclab.aggregate(run(name))
        places = Counter(zip(found.iteration[found.accepted], found.depth[found.accepted], strict=True))
        assert set(places.values()) <= {1}, name
    drawn, matched = speclab.aggregate(run("rejection")), speclab.aggregate(run("sample and match"))
    assert (drawn.reached & ~drawn.tried).sum() > (matched.reached & ~matched.tried).sum()


PAIRS = st.tuples(*[st.sampled_from([*DIMENSIONS, None])] * 2).filter(lambda pair: pair[0] and pair[0] != pair[1])


@given(PAIRS, st.lists(st.sampled_from(list(RUNS)), max_size=4))
@settings(max_examples=60, deadline=None)
def test_cells_hold_every_tried_node_once_and_their_members_are_in_them(dimensions, names):
    traces = [run(name) for name in names]
    found, (by, by2) = speclab.aggregate(traces), dimensions
    cells = found.group(by, by2)
    known = np.isfinite(found.entropy) | ("entropy" not in dimensions)
    assert cells.tried.shape == cells.accepted.shape == tuple(map(len, cells.names))
    assert cells.tried.sum() == (found.tried & known).sum()
    assert cells.accepted.sum() == (found.accepted & known).sum()
    seen = set()
    for row in range(len(cells.names[0])):
        for column in range(len(cells.names[1])):
            members = cells.members(row, column)
            assert len(members) == cells.tried[row, column]
            nodes = [traces[one.run].steps[one.iteration].nodes[one.node] for one in members]
            assert sum(node.verdict == "accepted" for node in nodes) == cells.accepted[row, column]
            seen.update(members)
            assert members == sorted(members)
            if by in ("source", "rule") and members:
                steps = [traces[one.run].steps[one.iteration] for one in members]
                values = {
                    step.rule if by == "rule" else step.tree.source[at.node]
                    for step, at in zip(steps, members, strict=True)
                }
                assert values == {cells.names[0][row]}
    assert len(seen) == cells.tried.sum()
    low, high = cells.interval
    some = cells.tried > 0
    assert (low[some] <= cells.rate[some] + 1e-9).all()
    assert (cells.rate[some] <= high[some] + 1e-9).all()
    assert np.isnan(cells.rate[~some]).all()


def test_groups_by_number_are_its_bins():
    found = speclab.aggregate([run(name) for name in RUNS])
    cells = found.group("depth", "draft_prob")
    for row, name in enumerate(cells.names[0]):
        for column, bin_ in enumerate(cells.names[1]):
            low, high = (float(end) for end in bin_.split(" to "))
            depths = found.depth >= 8 if name == "8 and more" else found.depth == int(name)
            inside = (found.draft_prob >= low) & ((found.draft_prob < high) | (high == 1))
            assert cells.tried[row, column] == (found.tried & depths & inside).sum()


def test_wilsons_interval_is_the_published_one():
    """Newcombe 1998, table I: 81/263, 15/148, 0/20, 1/29, with his z for 95%."""
    low, high = wilson(np.array([81, 15, 0, 1]), np.array([263, 148, 20, 29]), 1.959964)
    np.testing.assert_allclose(low, [0.2553, 0.0624, 0.0, 0.0061], atol=6e-5)
    np.testing.assert_allclose(high, [0.3662, 0.1605, 0.1611, 0.1718], atol=6e-5)


def test_calibration_is_the_weighted_gap_of_its_bins():
    found = speclab.aggregate([run("tree"), run("sample and match")])
    for first in (True, False):
        rows = found.select(found.tried & ((found.rank == 1) | (not first)))
        bins = np.minimum((rows.draft_prob * 4).astype(int), 3)
        gaps = [
            abs(rows.accepted[bins == i].mean() - rows.draft_prob[bins == i].mean()) * (bins == i).mean()
            for i in set(bins)
        ]
        made = found.calibration(4, first=first)
        assert made.error == pytest.approx(sum(gaps))
        assert made.cells.tried.sum() == len(rows)
    with refused(SettingsError, "0 bins"):
        found.calibration(0)


def test_a_draft_that_is_the_target_is_calibrated_where_the_target_samples_once_and_not_at_temperature_0():
    same = pair_of(TARGET, TARGET)
    errors = {}
    for temperature in (0.0, 1.0):
        runs = [finished(STRATEGIES["tree"], pair=same, temperature=temperature, seed=seed) for seed in range(12)]
        errors[temperature] = speclab.aggregate(runs).calibration(4, first=False).error
    assert errors[1.0] < 0.05 < 0.15 < errors[0.0]


def test_joining_runs_is_counting_them_together():
    traces = [run("tree"), run("plain"), run("paper")]
    one, other = joined([speclab.aggregate(trace) for trace in traces]), speclab.aggregate(traces)
    for name, column in other.columns().items():
        np.testing.assert_array_equal(getattr(one, name), column)


def test_without_runs_iterations_or_drafts_everything_is_there_and_empty(tmp_path):
    empty = replace(made_run(1, 2), steps=())
    for given_ in ([], empty, [empty, empty], run("plain")):
        found = speclab.aggregate(given_)
        assert len(found) == 0
        assert np.isnan(found.rate)
        assert found.group("depth", "source").tried.size == 0
        assert found.group("kind").tried.sum() == 0
        assert np.isnan(found.calibration().error)
        assert parquet.read_table(found.to_parquet(tmp_path / "empty.parquet")).num_rows == 0


def test_what_cannot_be_aggregated_or_grouped_is_refused():
    with refused(SettingsError, "str", "load_trace"):
        speclab.aggregate("run.json.gz")
    with refused(SettingsError, "int", "sessions"):
        speclab.aggregate([run("tree"), 3])
    with refused(SettingsError, "'colour'", "depth"):
        speclab.aggregate(run("tree")).group("depth", "colour")


def test_parquet_gives_the_columns_back_with_what_they_mean(tmp_path, monkeypatch):
    found = speclab.aggregate([run("tree"), run("paper")])
    path = found.to_parquet(tmp_path / "nodes.parquet")
    table = parquet.read_table(path)
    assert table.column_names == list(found.columns())
    for name, column in found.columns().items():
        np.testing.assert_array_equal(table[name].to_numpy(), column)
    assert table["entropy"].null_count == np.isnan(found.entropy).sum() > 0
    about = {one.name: one.metadata for one in table.schema}
    assert all(one[b"description"] for one in about.values())
    assert about["entropy"][b"unit"] == b"nats"
    with refused(TraceError, "cannot be written"):
        found.to_parquet(tmp_path / "missing" / "nodes.parquet")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["nodes.parquet"]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refused(SpeclabError, "pip install"):
        found.to_parquet(path)


@pytest.mark.parametrize(
    ("kind", "texts"),
    {
        "word start": [" the", "\nThe", " don't", " é"], "continuation": ["ing", "The", "日本", "x1"],
        "digits": ["7", " 12", "２"], "punctuation": [".", " (", "...\n", "->", "$"],
        "white space": [" ", "\n\n", "\t"],
        "special": ["</s>", "<|im_end|>", "<unk>", "[PAD]"], "other": ["", "<0xE2>", "3D", "#17"],
    }.items(),
)  # fmt: skip
def test_kinds_of_tokens(kind, texts):
    assert {text: token_kind(text) for text in texts} == dict.fromkeys(texts, kind)
