"""Settings of the form are previewed on the tree."""

from __future__ import annotations

from support.lab_fixtures import SMALL

from speclab.features.whatif import what_if


def test_a_setting_previews_at_once_what_would_have_been_drafted(small_page):
    page = small_page
    step = page.lab.state.step
    page.set(node_budget=4)
    assert page.status["pending"] == ["node budget 12 → 4"]
    expected = what_if(step, SMALL.changed(node_budget=4))
    assert page.preview["tree"]["token"] == expected.tree.token.tolist()
    assert page.preview["recorded"] == list(expected.recorded)
    assert page.preview["accepted"] == list(expected.accepted)
    assert len(page.steps) == 2, "nothing was decoded"
    page.do("reset")
    assert page.preview is None
    assert page.status["pending"] == []
    assert page.status["wanted"]["strategy"]["settings"]["node_budget"] == 12
