"""Where sampling stopped."""

from __future__ import annotations

from support.view_samples import recorded

from speclab import views
from speclab.views.drawing import call


def test_where_sampling_stopped_the_draws_and_the_residual_are_shown():
    stops = [step for step in recorded() if step.residual is not None]
    figures = [views.residual(step) for step in stops]
    for step, figure in zip(stops, figures, strict=True):
        for name, bars in {"target": figure.data[0], "residual": figure.data[-1]}.items():
            values = {getattr(token, name) for token in step.residual.tokens}
            assert {*bars.x} <= values | {None}
        assert call("quoted", step.bonus, step.texts) in figure.layout.meta["sentence"]
    assert {len(figure.data) for figure in figures} == {2, 3}, "with q where candidates were drawn"
