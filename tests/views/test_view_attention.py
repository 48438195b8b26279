"""What a node attends to: every weight has its bar, and one on a hidden entry is seen."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from view_samples import five_nodes, large, odd_tokens, one_node, sixty_nodes, steps, words

from speclab.trace.records import Step
from speclab.views.attention_chart import attention_spec, attention_summary, attention_table, picked
from speclab.views.attention_mask import ANCESTOR, HIDDEN, PREFIX, SELF, WRONG_COLOR, categories
from speclab.views.figures import figure

PREFIX_TEXTS = [" the", "<b>", "$x$", "\n"]


def weights_of(step: Step, node: int, layers: int = 3, heads: int = 2) -> np.ndarray:
    """Random weights on what the mask allows; each head's add up to one."""
    allowed = categories(step)[node, : step.prefix_length + len(step.tree)] != HIDDEN
    found = np.random.default_rng(node).gamma(0.5, 1, (layers, heads, len(allowed))) * allowed
    return (found / found.sum(axis=-1, keepdims=True)).astype(np.float32)


def bars(spec):
    return spec["data"][0]


@settings(max_examples=20)
@given(steps(max_nodes=40), st.data())
def test_the_bars_add_up_and_every_node_that_is_seen_has_one(step, data):
    node = data.draw(st.integers(0, len(step.tree) - 1))
    layer, head = data.draw(st.sampled_from([(None, None), (1, None), (None, 1), (2, 0)]))
    spec = attention_spec(step, node, weights_of(step, node), layer, head)
    figure(spec)
    bar = bars(spec)
    assert sum(bar["y"]) == pytest.approx(1, abs=0.01)
    shown = [one for one in bar["customdata"] if one is not None]
    assert {*np.flatnonzero(step.mask[node]).tolist()} <= {*shown}
    assert len(bar["y"]) <= 14 + max(16, 1 + len(step.tree.path(node)))
    assert WRONG_COLOR not in bar["marker"]["color"]
    assert "nothing to what the mask hides" in attention_summary(step, node, weights_of(step, node), layer, head)


def test_one_head_or_a_mean_above_the_row_of_the_mask():
    step, weights = five_nodes(), weights_of(five_nodes(), 3)
    wanted = {(2, 1): weights[2, 1], (2, None): weights[2].mean(0), (None, 0): weights[:, 0].mean(0)}
    wanted[None, None] = weights.mean((0, 1))
    assert all(picked(weights, *which) == pytest.approx(mean) for which, mean in wanted.items())
    assert bars(attention_spec(step, 3, weights, 2, 1))["y"] == pytest.approx(weights[2, 1], abs=1e-5)
    row = attention_spec(step, 3, weights)["data"][1]
    assert [*b64decode(row["z"]["bdata"])] == [PREFIX] * 12 + [ANCESTOR, ANCESTOR, HIDDEN, SELF, HIDDEN]
    assert "layer 2, head 1" in attention_summary(step, 3, weights, 2, 1)


def test_a_weight_on_a_hidden_entry_is_seen_in_bar_sentence_and_row():
    for step, hidden in ((five_nodes(), 4), (sixty_nodes(), 59)):
        weights = weights_of(step, 3)
        weights[..., step.prefix_length + hidden] = 0.1
        bar = bars(attention_spec(step, 3, weights))
        place = bar["marker"]["color"].index(WRONG_COLOR)
        assert bar["y"][place] == pytest.approx(0.1, abs=1e-4)
        assert bar["text"][place].startswith("×")
        assert "✗ 0.1 to what the mask hides" in attention_summary(step, 3, weights)
    window = replace(five_nodes(), prefix_length=40, prefix_seen=(20,) * 5)
    leaking = weights_of(window, 3)
    assert WRONG_COLOR not in bars(attention_spec(window, 3, leaking))["marker"]["color"]
    leaking[..., 5] = 0.2
    assert WRONG_COLOR in bars(attention_spec(window, 3, leaking))["marker"]["color"]


def test_texts_are_shown_as_they_are_and_large_trees_in_few_bytes():
    for step in (one_node(), odd_tokens(), large()):
        node = len(step.tree) - 1
        weights = weights_of(step, node)
        spec = attention_spec(step, node, weights, prefix=PREFIX_TEXTS)
        figure(spec)
        assert len(json.dumps(spec)) < 10_000
        for said in (*bars(spec)["hovertext"], *spec["layout"]["xaxis"]["ticktext"]):
            assert not {"<", ">", "$"} & {*said}
        assert words(attention_table(step, node, weights, prefix=PREFIX_TEXTS)).count("visible") > 1
