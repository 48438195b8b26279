"""Two runs beside each other, what is accepted, and what a test of an engine asserts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.outside_decoder import recorded
from support.recordings import kinds
from support.refusals import refused

from speclab import clinic
from speclab.errors import SettingsError

pytestmark = pytest.mark.model
SHORT = {"whole": False, "iterations": 4}


def test_two_runs_are_compared_up_to_where_they_part(tmp_path):
    a, pair = recorded(tmp_path / "a.jsonl", **SHORT)
    assert clinic.diff(a, a).verdict == "same"
    half, _ = recorded(tmp_path / "b.jsonl", dtype="bfloat16", **SHORT)
    assert clinic.diff(a, half, pair).verdict == "ties"
    other, _ = recorded(tmp_path / "c.jsonl", seed=5, **SHORT)
    drafts = clinic.diff(a, other, pair)
    assert (drafts.verdict, drafts.text, drafts.answers) == ("drafts", None, None)
    assert drafts.proposals is not None
    wrong, _ = recorded(tmp_path / "d.jsonl", "chain", **SHORT)
    for pairs, side in (((a, wrong), "b"), ((wrong, a), "a"), ((wrong, wrong), "both")):
        result = clinic.diff(*pairs, pair)
        assert (result.verdict, result.side) == ("fault", side)
        assert json.loads(json.dumps(result.as_dict()))["verdict"] == "fault"
    with refused(SettingsError, "prompt"):
        clinic.diff(a, replace(a, prompt_ids=(1, 2)))


@pytest.mark.parametrize(("fault", "kind"), [("path short", "choice"), ("no bonus", "commit")])
@pytest.mark.parametrize("decided", [True, False])
def test_accepting_too_little_is_a_finding_and_leaves_the_text_right(
    fault, kind, decided, tmp_path
):
    a, pair = recorded(tmp_path / "a.jsonl", **SHORT)
    b, _ = recorded(tmp_path / "b.jsonl", fault, **SHORT)
    result = clinic.diff(a, b, pair if decided else None)
    assert (result.verdict, result.side, result.text) == ("acceptance", "b", None)
    assert result.passes[0] != result.passes[1]
    report = clinic.report(b, pair)
    assert kinds(b, pair) == {kind}
    assert report.accepted == result.accepted[1]
    assert report.acceptance == result.acceptance[1]
    clinic.assert_lossless(tmp_path / "b.jsonl", pair)


def test_an_engine_is_not_lossless_if_its_answers_are_wrong(tmp_path):
    path = tmp_path / "run.jsonl"
    trace, pair = recorded(path, "sibling", **SHORT)
    assert clinic.report(trace, pair).as_dict()["findings"][0]["iteration"] == 0
    with pytest.raises(AssertionError, match="mask"):
        clinic.assert_lossless(path, pair)
