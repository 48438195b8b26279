"""Export, beside "Use this" and "Change": settings as an engine's line, or why there is none and what is near."""

from __future__ import annotations

import html as markup
import re
import shlex

import pytest
from lab_tools import PATIENCE, click, show

import speclab

pytestmark = pytest.mark.model
CHAIN = speclab.LinearSpeculation(draft_tokens=3)


@pytest.fixture
def panel(make):
    """The tab Sweep, a setting drawn over two values."""
    lab = make(strategy=CHAIN, max_new_tokens=12)
    lab.run()
    show(lab, "Sweep")
    panel = lab.panels.tabs.curves
    panel.first.setting.value = "draft_tokens"
    panel.first.low.value, panel.first.high.value, panel.first.count.value = "2", "4", 2
    click(lab, panel.go)
    assert panel.worker.wait(PATIENCE)
    return panel


def line(panel) -> str:
    """Of the tab Sweep or of the top of the lab."""
    return markup.unescape(re.search(r"<textarea[^>]*>(.*?)</textarea>", panel.exported.shown.value, re.DOTALL)[1])


def test_the_line_is_that_of_the_chosen_point_and_follows_point_and_engine(panel):
    assert panel.exported.layout.display == "none"
    panel.point.value = 0
    panel.export.value = True
    assert panel.exported.layout.display is None
    assert '"num_speculative_tokens": 2' in line(panel)
    panel.point.value = 2
    assert '"num_speculative_tokens": 4' in line(panel)
    panel.exported.engine.value = "llama.cpp"
    words = shlex.split(line(panel))
    assert words[words.index("--spec-draft-n-max") + 1] == "4"
    assert "<li>" in panel.exported.shown.value
    panel.export.value = False
    assert panel.exported.layout.display == "none"


def test_beside_change_the_line_is_of_what_is_set_with_no_model_loaded(make):
    lab = make("mini", strategy=CHAIN)
    config = lab.config
    assert not config.exported.children
    config.export.value = True
    assert '"num_speculative_tokens": 3' in line(config)
    assert "TARGET_MODEL" in line(config)
    config.strategy.form.controls["draft_tokens"].value = 5
    assert '"num_speculative_tokens": 5' in line(config)
    config.strategy.write(speclab.Goose(longest_ngram=7))
    assert "Goose does not go to vLLM" in config.exported.shown.value
    assert '"prompt_lookup_max": 7' in line(config), "what is near it can be copied at once"
    config.strategy.write(speclab.Autoregressive())
    assert "textarea" not in config.exported.shown.value
    config.export.value = False
    assert config.exported.layout.display == "none"


def test_models_that_run_are_named(make):
    lab = make(strategy=CHAIN, max_new_tokens=12)
    lab.config.export.value = True
    lab.run()
    assert lab.session.pair.draft.name in line(lab.config)
