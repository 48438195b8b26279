"""Every drafted node as a row: the columns against a plain loop over the records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_run import made_run
from refusals import refused
from sessions import STRATEGIES, TARGET, finished, pair_of

import speclab
from speclab.analysis.nodes import COLUMNS, token_kind
from speclab.errors import SettingsError

RUNS = {
    **{name: (strategy, {}) for name, strategy in STRATEGIES.items()},
    "sample and match": (STRATEGIES["tree"], {"temperature": 1.0}),
    "rejection, independent": (STRATEGIES["tree"].changed(candidates="independent"), {"temperature": 1.0}),
    "rejection": (STRATEGIES["tree"].changed(candidates="without_replacement"), {"temperature": 1.2}),
    "cut short": (STRATEGIES["dynatree"], {"max_new_tokens": 3}),
}


def by_hand(trace: speclab.Trace) -> list[dict[str, object]]:
    """What each drafted node went through, from the path and the rule alone."""
    rows = []
    for step in trace.steps:
        tree, accepted = step.tree, set(step.accepted)
        verified = step.root_choice is None
        path = [0, *step.accepted] if verified else list(step.accepted)
        for node in range(len(tree)):
            parent = int(tree.parent[node])
            if parent < 0 and verified:
                continue
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
    trace = finished(strategy, **settings).trace
    frame, expected = speclab.nodes(trace), by_hand(trace)
    assert len(frame) == len(expected) == sum(step.counts.drafted for step in trace.steps)
    for column in expected[0] if expected else ():
        values = np.array([row[column] for row in expected])
        if values.dtype.kind == "f":
            np.testing.assert_allclose(frame[column].to_numpy(), values, rtol=1e-6)
        else:
            assert frame[column].tolist() == values.tolist(), column
    assert frame.accepted.sum() == sum(step.counts.accepted for step in trace.steps)
    assert set(frame.strategy) <= {trace.settings["strategy"]}


def test_a_draft_that_is_the_target_is_calibrated_where_the_target_samples_once():
    pair = pair_of(TARGET, TARGET)
    runs = [finished(STRATEGIES["tree"], pair=pair, temperature=1.0, seed=seed) for seed in range(12)]
    frame = speclab.nodes(runs)
    assert sorted(frame.run.unique()) == list(range(12))
    tried = frame[frame.tried]
    bins = tried.groupby((tried.draft_prob * 4).astype(int))
    gaps = (bins.accepted.mean() - bins.draft_prob.mean()).abs() * bins.size() / len(tried)
    assert gaps.sum() < 0.05


def test_without_drafts_the_columns_are_there_and_anything_else_is_refused():
    for runs in ([], replace(made_run(1, 2), steps=()), finished(STRATEGIES["plain"])):
        frame = speclab.nodes(runs)
        assert len(frame) == 0
        assert list(frame.columns) == list(COLUMNS)
    with refused(SettingsError, "'run.json.gz'", "load_trace"):
        speclab.nodes(["run.json.gz"])


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
