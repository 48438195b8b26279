"""The report, a tolerance, and the command `speclab clinic`."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest
from support.command import speclab_command
from support.outside_decoder import recorded
from support.pairs import pair_of
from support.recordings import ROOT, kinds, written

import speclab
from speclab import clinic
from speclab.cli import app

pytestmark = pytest.mark.model


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_half_precision_is_measured_and_no_fault(family, tmp_path):
    trace, pair = recorded(tmp_path / "run.jsonl", family=family, dtype="bfloat16", whole=False)
    assert kinds(trace, pair) == set()
    report = clinic.report(trace, pair)
    table = report.table("part")
    assert 0 < table.loc["drafted", "gap, median"] < 3 * table.loc["drafted", "reference, median"]
    assert len(report.gaps) == report.rows == sum(len(step.nodes) for step in trace.steps)
    assert report.exit_status == 0
    assert json.loads(json.dumps(report.as_dict()))["compared"] == report.rows


@pytest.mark.parametrize(
    ("fault", "found"), [("", set()), ("position -1", {"position"}), ("final norm", {"precision"})]
)
def test_rounded_weights_are_no_fault_and_what_is_far_beyond_is(fault, found, tmp_path):
    trace, pair = recorded(tmp_path / "run.jsonl", fault, dtype="int8", whole=False)
    assert kinds(trace, pair) == found


def test_a_tolerance_can_be_given(tmp_path):
    path = tmp_path / "run.jsonl"
    recorded(path, dtype="bfloat16", whole=False)
    path.write_text(path.read_text().replace('"bfloat16"', '"float32"'))
    trace = speclab.load_steps(path)
    assert kinds(trace, pair_of("llama"))
    assert kinds(trace, pair_of("llama"), close=1.0) == set()


def test_the_command_compares_runs_and_prints_json(tmp_path):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    recorded(a, iterations=2, whole=False)
    recorded(b, iterations=2, seed=3, whole=False)
    done = speclab_command("diff", a, b, "--json")
    assert json.loads(done.output)["verdict"] == "drafts"
    for option in (["--report"], ["--draft", "self"]):  # they need models
        assert speclab_command("clinic", a, *option).exit_code == 2


def test_a_bad_file_of_a_folder_is_said_and_the_others_are_checked(tmp_path):
    written(tmp_path / "a.jsonl", "broken")
    written(tmp_path / "b.jsonl", ROOT)
    done = speclab_command("clinic", tmp_path)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "a.jsonl" in done.stderr
    assert "b.jsonl: " in done.stdout
    assert not re.search(r"\b1 (iteration|finding|tie|row)s", done.stdout)
    written(tmp_path / "c.jsonl", ROOT | {"prefix_length": 9})
    done = speclab_command("clinic", tmp_path, "--json")
    assert done.exit_code == 1
    assert [each["status"] for each in json.loads(done.stdout).values()] == [2, 0, 1]


def test_a_fault_and_bad_input_have_exit_statuses_of_their_own(tmp_path):
    none = tmp_path / "none"
    good = written(tmp_path / "good", ROOT)
    wrong = written(tmp_path / "wrong", ROOT | {"prefix_length": 9})
    # its text parts from the good one's, and there is no target
    other = written(tmp_path / "other", ROOT | {"accepted": [1], "committed": [8, 4]})
    for files, status in (([wrong], 1), ([none], 2), ([good, wrong], 1), ([good, other], 2)):
        command = ["clinic", "diff"][len(files) - 1]
        assert speclab_command(command, *files).exit_code == status


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_terminal_alone_shows_how_far_a_check_is(stream, tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    pair = recorded(path, iterations=2)[1]
    monkeypatch.setattr(clinic, "load_target", lambda *_, **__: pair)
    monkeypatch.setattr(sys, "stderr", stream())
    for words in (["clinic", path], ["diff", path, path]):
        app([*map(str, words), "--target", "mine"], standalone_mode=False)
        shown = sys.stderr.getvalue()
        assert ("1 of 2" in shown) == sys.stderr.isatty(), words
        sys.stderr.truncate(0)
