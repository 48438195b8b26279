"""The page's previews equal `what_if`: the same tree, path and gaps, from the same record."""

from __future__ import annotations

import json

from support.engine import evaluated
from support.every_strategy import PROMPT, pair_of
from support.records import assert_alike, ran

import speclab
from speclab.errors import NotRecordedError
from speclab.views.run_data import step_data

OTHERS = [
    speclab.DynaTree(node_budget=4),
    speclab.DynaTree(node_budget=40, max_branches=6, base_depth=2, max_depth=3),
    speclab.DynaTree(low_confidence=0, stop_probability=0.05, deep_probability=0.3),
    speclab.DynaTree(prune_probability=0.2, base_depth=1),
    speclab.DynaTree(root="drafted"),
    speclab.FixedTree(depth=2, branching=3),
    speclab.LinearSpeculation(draft_tokens=6, confidence_stop=0.2),
    speclab.DraftHead(node_budget=7, depth=3, children=2),
    speclab.PromptLookup(),
]
RECORDED = [
    speclab.DynaTree(node_budget=24, prune_probability=0),
    speclab.DynaTree(node_budget=24, root="drafted"),
    speclab.FixedTree(depth=3, branching=2, head=0),
    speclab.DraftHead(node_budget=9, depth=3, children=3),
    speclab.LinearSpeculation(),
    speclab.PromptLookup(),
]


def own(step, strategy):
    try:
        found = speclab.what_if(step, strategy)
    except NotRecordedError:
        return None
    return json.loads(json.dumps(found.data()))


def test_previews_are_those_of_the_kernel():
    cases, expected = [], []
    for recorded in RECORDED:
        session = ran(pair_of(), recorded, PROMPT, max_new_tokens=30)
        for step in session.steps:
            for other in OTHERS:
                cases.append({"step": step_data(step), "wanted": other.describe()})
                expected.append(own(step, other))
    found = evaluated("Promise.all(data.map(({ step, wanted }) => whatIf(step, wanted)))", cases)
    answered = 0
    for case, page, kernel in zip(cases, found, expected, strict=True):
        if kernel is not None and page is not None:
            page["tree"]["source"] = kernel["tree"]["source"]
            answered += 1
        elif case["step"]["root_choice"] is not None:
            continue  # the page previews no drafted root
        assert_alike(page, kernel, str(case["wanted"]))
    assert answered > 50
