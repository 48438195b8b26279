"""What a person sees first, at three sizes and two themes; that nothing moves; how much there is.

Pictures of every size, theme and place are left in artifacts/browser/: look at them, for a clipped picture passes here.
"""

from __future__ import annotations

import pytest
from access import CONTRAST, NAMELESS
from opened import STATUS, quiet

pytestmark = pytest.mark.browser
_quiet = pytest.fixture(autouse=True)(quiet)

BOXES = """names => Object.fromEntries(names.map(name => {
  const box = document.querySelector(name)?.getBoundingClientRect();
  return [name, box && [box.x, box.y, box.width, box.height].map(Math.round)];
}))"""
STAGE = [".speclab-tree .main-svg", ".speclab-mask .main-svg", "button.speclab-step", ".speclab-status"]
FIXED = [".speclab-timeline", "button.speclab-step", ".speclab-status", ".speclab-text"]
SIZES = [(1280, 800), (1440, 900), (1920, 1080)]
BELOW = 25
"""Pixels of JupyterLab's own line at the bottom."""
CONTROLS = """() => [...document.querySelector('.speclab-lab').querySelectorAll('button, select, input, summary')]
  .filter(one => one.checkVisibility({visibilityProperty: true}) && !one.closest('[role=tablist]')).length"""
WORDS = "document.querySelector('.speclab-lab').innerText.split(/\\s+/).filter(word => /\\p{L}/u.test(word)).length"
CUT = "[...document.querySelectorAll('.speclab-tree text')].filter(one => one.textContent.includes('…')).length"
MOST_CONTROLS, MOST_WORDS = 18, 250


def boxes(lab, names) -> dict[str, list[int]]:
    lab.rest()
    return lab.page.evaluate(BOXES, names)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_tree_mask_status_and_step_are_on_the_first_screen(lab, size):
    lab.page.set_viewport_size({"width": size[0], "height": size[1]})
    light = {}
    for theme in ("Light", "Dark"):
        lab.theme(theme)
        for side_bar in (True, False):
            lab.read(f"jupyterapp.shell.{'expandLeft' if side_bar else 'collapseLeft'}()")
            places = boxes(lab, STAGE)
            assert light.setdefault(side_bar, places) == places, "Dark is laid out as Light is"
            lab.shot(f"first_{size[0]}_{'side' if side_bar else 'wide'}_{theme.lower()}")
            assert lab.read(CUT) == 0, "labels have the room that the mask does not need"
            for name, (x, y, width, height) in places.items():
                assert min(x, y) >= 0, f"{name} is off the screen: {places}"
                assert min(width, height) > 12, f"{name} is not there: {places}"
                assert x + width <= size[0], f"{name} is off the screen: {places}"
                assert y + height <= size[1] - BELOW, f"{name} is off the screen: {places}"
    lab.theme("Light")


def test_there_is_little_on_the_first_screen_and_every_control_has_a_name(lab):
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    lab.rest()
    counts = lab.page.evaluate(CONTROLS), lab.read(WORDS)
    print("\ncontrols and words:", counts)
    assert counts[0] <= MOST_CONTROLS
    assert counts[1] <= MOST_WORDS
    assert lab.page.evaluate(NAMELESS) == []
    assert lab.page.evaluate(CONTRAST, 4.5) == {}


def test_nothing_moves_between_steps_and_phases(lab):
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    lab.read("jupyterapp.shell.collapseLeft()")
    before = boxes(lab, FIXED)
    for _ in range(5):
        lab.step()
        assert boxes(lab, FIXED) == before
    lab.shot("steps")
    for name in ("draft", "flatten", "verify", "accept"):
        lab.phase(name)
        lab.wait(f"{STATUS} !== ''")
        assert boxes(lab, FIXED[:3]) == {name: before[name] for name in FIXED[:3]}
        lab.shot(f"phase_{name}")
    lab.phase("commit")
    lab.shot("phase_commit")
