"""The curve of a setting in the lab."""

from __future__ import annotations

import pytest


def test_a_curve_replays_the_text_over_the_range_of_a_setting(small_page):
    page = small_page
    page.run_until("iteration >= 8")
    calls = page.lab.session.metrics.target_calls
    page.do("curve", name="node_budget")
    assert page.error is None
    curve = page.panels["curve"]
    assert [point["value"] for point in curve["points"]] == curve["values"]
    assert curve["here"] == 12
    assert curve["plain"]["tokens_per_iteration"] == pytest.approx(1)
    assert page.lab.session.metrics.target_calls == calls, "no target runs"
    page.do("curve", name="colour")
    assert page.error["where"] == "strategy"
