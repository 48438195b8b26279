"""The page's pictures, drawn in Node from the records of a trace."""

from __future__ import annotations

from support.node import evaluated
from support.view_samples import five_nodes

from speclab.views.phases import positions
from speclab.views.run_data import step_data
from speclab.views.sentences import position_sentence


def test_a_position_has_one_sentence_in_both_languages():
    step = five_nodes()
    expression = "positions(data).map(at => positionSentence(data, at))"
    assert evaluated(expression, step_data(step)) == [
        position_sentence(step, position) for position in positions(step)
    ]
