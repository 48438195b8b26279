"""What settings are thresholds on, and its values in a step."""

from __future__ import annotations

import pytest
from sessions import session_of

import speclab
from speclab.drafters import strategies
from speclab.drafters.measures import measure_of, measured
from speclab.views.preview import dots


def thresholds(kind: type) -> dict[str, str]:
    fields = {name: measure_of(field) for name, field in kind.model_fields.items()}
    return {name: measure for name, measure in fields.items() if measure is not None}


def test_fields_say_what_they_are_thresholds_on():
    assert thresholds(speclab.LinearSpeculation) == {"draft_tokens": "depth", "confidence_stop": "token probability"}
    dynatree = thresholds(speclab.DynaTree)
    assert {name for name, measure in dynatree.items() if measure == "path probability"} == {
        "stop_probability", "deep_probability", "prune_probability",
    }  # fmt: skip
    assert dynatree["high_confidence"] == dynatree["low_confidence"] == "confidence"
    assert all(
        measure_of(kind.model_fields["node_budget"]) == "nodes"
        for kind in strategies().values()
        if "node_budget" in kind.model_fields
    )


@pytest.fixture(scope="module")
def step():
    wide = speclab.DynaTree(
        stop_probability=0, prune_probability=0.02, low_confidence=0.9, base_depth=4, max_depth=4, history="off"
    )  # fmt: skip
    return session_of(wide).step()


def test_every_event_and_node_is_among_the_values(step):
    expanded = [event.values["confidence"] for event in step.events if event.kind == "expand"]
    assert measured(step, "confidence") == pytest.approx(expanded)
    pruned = [event.values["path_prob"] for event in step.events if event.kind == "prune"]
    assert pruned
    assert len(measured(step, "path probability")) == len(step.tree) - 1 + len(pruned)
    assert max(pruned) < 0.02 <= min(measured(step, "path probability")[: len(step.tree) - 1])
    assert measured(step, "depth") == tuple(step.tree.depth[1:].tolist())
    assert measured(step, "nodes") == (len(step.tree),)


def test_dots_are_counted_in_words(step):
    values = measured(step, "path probability")
    drawn = dots(step, "path probability", 0.02, lambda value: value)
    assert drawn.count("<circle") == len(values)
    words = f"{len(step.tree) - 1} of {len(values)} paths reach it"
    assert f'aria-label="{words}"' in drawn
    assert f">{words}<" in drawn
    assert f"{len(step.tree)} in this tree" in dots(step, "nodes", 3, lambda value: value / 256)
