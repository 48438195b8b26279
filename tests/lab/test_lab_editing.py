"""A tree edited by hand in the lab: edits, what they show, Verify, and that no error loses them."""

from __future__ import annotations

import numpy as np
import pytest
from lab_tools import click, settle

from speclab import DynaTree
from speclab.drafters.by_hand import HAND
from speclab.lab.editing import NEXT, ROOT


@pytest.fixture
def edited(make):
    """A lab at its second iteration, whose tree is edited, and the editor."""
    lab = make(strategy=DynaTree(low_confidence=0.9, high_confidence=0.99, prune_probability=0.02, history="off"))
    lab.step()
    lab.step()
    editor = lab.panels.editor
    editor.toggle.value = True
    assert settle(lab)
    return lab, editor


def type_in(lab, editor, text: str, button) -> None:
    editor.typed.value = text
    click(lab, button)


def test_an_edited_iteration_is_verified_in_a_run_of_its_own_beside_the_other(edited):
    lab, editor = edited
    first, before = lab.session, lab.state.trace.steps[1]
    assert lab.state.frame.edited is not None
    assert (lab.state.step.tree.token == before.tree.token).all()
    text = lab.state.trace.token_ids()
    child = next(token for _, token in editor.child.options)
    editor.child.value = child
    click(lab, editor.add)
    assert len(lab.state.step.tree) == len(before.tree) + 1
    assert lab.state.selected == 0
    added = lab.state.step.tree.children[0][-1]
    assert (lab.state.step.tree.token[added], lab.state.step.tree.source[added]) == (child, HAND)
    lab.select(added)
    click(lab, editor.prune)
    assert (lab.state.step.tree.token == before.tree.token).all()
    click(lab, editor.undo)
    assert len(lab.state.step.tree) == len(before.tree) + 1
    click(lab, editor.verify)
    assert not lab.state.error
    assert lab.session is not first
    assert (lab.state.cursor, lab.state.step.settings["strategy"]) == (2, "ByHand")
    assert lab.state.step.committed == before.committed  # the target's own text, whatever the tree
    assert lab.state.trace.token_ids() == text
    assert lab.state.frame.redone is before
    assert not editor.toggle.value
    assert "DynaTree" in lab.state.status
    assert [len(fork.name) > 0 for fork in lab.forks] == [True, True]
    assert first.steps[1] is before
    lab.step()
    assert len(lab.state.step.tree) == 1  # without a tree the root alone
    assert type(lab.config.strategy.read()).__name__ == "ByHand"


def test_the_next_tree_goes_on_in_the_same_run(edited):
    lab, editor = edited
    click(lab, editor.verify)
    session = lab.session
    editor.start.value = NEXT
    editor.toggle.value = True
    assert settle(lab)
    assert len(lab.state.step.tree) == 1
    assert lab.state.frame.committed == 2
    type_in(lab, editor, "#7", editor.add)
    click(lab, editor.verify)
    assert not lab.state.error
    assert lab.session is session
    assert [len(step.tree) for step in session.steps][2:] == [2]
    assert lab.state.cursor == 3


def test_cells_of_the_mask_are_flipped_by_clicks_and_from_the_keyboard(edited):
    lab, editor = edited
    expected = lab.state.step.tree.ancestor_mask()
    lab._hear({"cell": [1, 0]})
    assert settle(lab)
    assert not lab.state.step.mask[1, 0]
    assert '"click":"cell"' in lab.panels.views["mask"].drawing
    lab.select(1)
    editor.column.value = 0
    click(lab, editor.flip)
    assert (lab.state.step.mask == expected).all()
    lab._hear({"cell": [1, 0]})
    click(lab, editor.verify)
    step = lab.state.step
    assert (step.mask != expected).sum() == 1
    assert step.note
    assert not lab.session.metrics.lossless
    assert '"click":"cell"' not in lab.panels.views["mask"].drawing


def test_a_forced_root_is_gone_on_from(edited):
    lab, editor = edited
    editor.start.value = ROOT
    assert settle(lab)
    newest = lab.state.trace.token_ids(1)[-1]
    type_in(lab, editor, f"#{(newest + 1) % 64}", editor.force)
    click(lab, editor.verify)
    assert lab.state.step.tree.token[0] == (newest + 1) % 64
    assert lab.session.token_ids[len(lab.state.trace.token_ids(1)) - 1] == (newest + 1) % 64
    assert "by hand" in lab.state.step.note


def test_no_error_loses_an_edit(edited):
    lab, editor = edited
    child = editor.child.options[0][1]
    editor.child.value = child
    click(lab, editor.add)
    tree = lab.state.step.tree
    for text, words in [
        ("#64", "outside the vocabulary"),
        ("#1 #2", "2 tokens"),
        ("  ", "spaces"),
        (f"#{child}", "already"),
    ]:
        type_in(lab, editor, text, editor.add)
        assert words in lab.state.error
        assert lab.state.step.tree is tree
        lab.state.error = ""
    lab.select(0)
    click(lab, editor.prune)
    assert "root" in lab.state.error
    lab._hear({"cell": [0, -3]})
    assert settle(lab)
    assert "prefix" in lab.state.error
    lab.goto(1)
    assert lab.state.frame.edited is None
    assert not editor.toggle.value
    click(lab, editor.verify)
    assert "Edit" in lab.state.error
    lab.goto(2)
    editor.toggle.value = True
    assert settle(lab)
    assert (lab.state.step.tree.token == tree.token).all()
    lab.phase("accept")
    assert lab.state.frame.edited is None
    editor.toggle.value = True
    assert settle(lab)
    lab.select(len(tree) - 1)
    for tab in lab.panels.tabs.titles:  # no view fails on a tree that is not verified
        lab.panels.tabs.show_tab(tab)
        assert settle(lab)
        assert not any("failed" in str(getattr(lab.screen, name)) for name in lab.screen.slots)
    editor.toggle.value = False
    assert settle(lab)
    assert lab.state.frame.edited is None


def test_a_drafted_root_is_edited_from_the_root_alone(make):
    lab = make(strategy=DynaTree(root="drafted"))
    lab.step()
    editor = lab.panels.editor
    editor.toggle.value = True
    assert settle(lab)
    assert "drafted" in lab.state.error
    assert not editor.toggle.value
    lab.state.error = ""
    editor.start.value = ROOT
    editor.toggle.value = True
    assert settle(lab)
    type_in(lab, editor, "#3", editor.add)
    click(lab, editor.verify)
    assert not lab.state.error
    assert lab.state.step.tree.token[1] == 3


def test_a_recording_is_edited_without_models_and_verified_with_them(make, tmp_path):
    lab = make(strategy=DynaTree())
    lab.step()
    path = lab.save_trace(tmp_path / "run.json.gz")
    other = make(strategy=DynaTree())
    other.open_trace(path)
    editor = other.panels.editor
    editor.toggle.value = True
    assert settle(other)
    editor.child.value = editor.child.options[0][1]
    click(other, editor.add)
    nodes = len(other.state.step.tree)
    click(other, editor.verify)
    assert not other.state.error
    assert len(other.state.step.tree) == nodes
    assert np.array_equal(other.session.steps[0].mask, other.session.steps[0].tree.ancestor_mask())
