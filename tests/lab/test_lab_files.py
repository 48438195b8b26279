"""Saving what is on the screen and opening what was saved, by method and by the row of files."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from lab_tools import click, every, settle
from records import assert_same

from speclab.trace.files import load_trace
from speclab.views.export import VIEWS, save_view


@pytest.fixture
def saved(lab, tmp_path):
    lab.run(until=lambda step: step.index == 2)
    return lab.save_trace(tmp_path / "run.json.gz")


def test_a_saved_run_is_the_run_and_opens_in_a_lab_without_models(lab, saved, make):
    assert_same(load_trace(saved), lab.session.trace)
    other = make()
    calls = [runner.calls for runner in other.session.pair.runners.values()]
    other.open_trace(saved)
    assert not other.state.error
    assert (len(other.state.trace.steps), other.state.cursor, other.state.frame.live) == (3, 1, False)
    assert "Opened" in other.state.status
    assert "recorded" in other.state.status
    other.goto(3)
    other.back(until="index == 0")
    assert other.state.cursor == 1
    assert [runner.calls for runner in other.session.pair.runners.values()] == calls


def test_an_opened_or_uploaded_run_is_walked_through_and_then_the_session_goes_on_where_it_is_the_same_run(lab, saved):
    session = lab.session
    lab.open_trace(saved)
    for cursor in (2, 3):
        assert lab.step().index + 1 == lab.state.cursor == cursor
        assert not lab.state.frame.live
    lab.step()
    assert lab.state.frame.live
    assert lab.state.cursor == session.cursor == 4
    assert "recording ends" in lab.state.status
    for name, content in (("mine.json.gz", saved.read_bytes()), ("cut.json.gz", saved.read_bytes()[:100])):
        lab.transport.files.upload.value = ({"name": name, "content": memoryview(content), "type": "", "size": 1,
                                   "last_modified": datetime.now(UTC)},)  # fmt: skip
        assert settle(lab)
    assert not lab.state.frame.live
    assert "Opened mine.json.gz" in lab.state.status
    assert "cut.json.gz is cut short" in lab.state.error


def test_a_run_of_something_else_is_not_gone_on_with_and_a_fork_of_it_says_that_models_are_needed(make, saved):
    lab = make(prompt=[7, 8, 9])
    lab.open_trace(saved)
    assert lab.fork(max_branches=5) is None
    assert "a fork needs them" in lab.state.error
    lab.run()
    assert (lab.state.cursor, lab.state.frame.live) == (3, False)
    assert "of another run" in lab.state.status
    assert not lab.session.steps
    lab.run_live()
    assert lab.state.frame.live
    assert lab.state.trace.prompt_ids == (7, 8, 9)


@pytest.mark.parametrize(
    ("content", "says"), [(None, "cannot be read"), (b"hello", "not a trace"), (b"\x1f\x8b\x08", "cut short")]
)
def test_a_file_that_is_no_trace_is_one_sentence_and_changes_nothing(lab, tmp_path, content, says):
    lab.step()
    frame, path = lab.state.frame, tmp_path / "x.json.gz"
    if content is not None:
        path.write_bytes(content)
    lab.open_trace(path)
    assert says in lab.state.error
    assert "\n" not in lab.state.error
    assert lab.state.frame is frame


def test_views_are_saved_as_they_are_shown(lab, tmp_path):
    lab.run(until=lambda step: len(step.tree) > 2)
    lab.select(1)
    path = lab.save_view("tree", tmp_path / "tree.html")
    again = save_view(lab.state.trace, lab.state.cursor, "tree", tmp_path / "again.html", selected=1)
    assert path.read_text(encoding="utf-8") == again.read_text(encoding="utf-8")
    assert lab.save_view("forest", tmp_path / "a.svg") is None
    assert "choose one of timeline" in lab.state.error


def test_the_row_of_files_appears_saves_and_opens(lab, tmp_path):
    lab.transport.more.value = True
    row = lab.transport.files
    assert row in every(lab.transport.unfolded)
    lab.step()
    assert [value for _, value in row.what.options] == ["trace", "page", *VIEWS]
    for what, ending in (("page", "run.html"), ("mask", "mask.html"), ("trace", "run.json.gz")):
        row.what.value = what
        assert row.path.value == ending
        row.path.value = str(tmp_path / ending)
        click(lab, row.save_button)
        assert not lab.state.error
        assert f"Saved {tmp_path / ending}" in lab.state.status
        assert (tmp_path / ending).stat().st_size > 500
    click(lab, row.open_button)
    assert not lab.state.frame.live
    row.path.value = " "
    click(lab, row.save_button)
    assert "No path is named" in lab.state.error
