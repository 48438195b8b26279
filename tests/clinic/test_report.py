"""The drift report, a tolerance, the command, and files with a malformed line."""

from __future__ import annotations

import json

import pytest
from support.outside_decoder import recorded
from support.pairs import pair_of
from typer.testing import CliRunner

import speclab
from speclab import clinic
from speclab.cli import app
from speclab.errors import TraceError

pytestmark = pytest.mark.model


def kinds(trace, pair, **more):
    return {finding.kind for finding in clinic.check(trace, pair, **more)} - {clinic.TIE}


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_half_precision_is_measured_and_no_fault(family, tmp_path):
    trace, pair = recorded(tmp_path / "run.jsonl", family=family, dtype="bfloat16", whole=False)
    report = clinic.report(trace, pair)
    assert not {finding.kind for finding in report.findings} - {clinic.TIE}
    table = report.table("part")
    assert 0 < table.loc["drafted", "gap, median"] < 3 * table.loc["drafted", "reference, median"]
    assert len(report.gaps) == report.rows == sum(len(step.nodes) for step in trace.steps)
    assert report.exit_status == 0
    assert json.loads(json.dumps(report.as_dict()))["compared"] == report.rows


def test_a_tolerance_can_be_given(tmp_path):
    path = tmp_path / "run.jsonl"
    recorded(path, dtype="bfloat16", whole=False)
    path.write_text(path.read_text().replace('"bfloat16"', '"float32"'))
    trace = speclab.load_steps(path)
    assert kinds(trace, pair_of("llama"))
    assert kinds(trace, pair_of("llama"), close=1.0) == set()


def test_the_command_checks_folders_and_prints_json(tmp_path):
    recorded(tmp_path / "a.jsonl", iterations=2, whole=False)
    recorded(tmp_path / "b.jsonl", iterations=2, seed=3, whole=False)
    done = CliRunner().invoke(app, ["clinic", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert {name: data["status"] for name, data in json.loads(done.output).items()} == {
        "a.jsonl": 0,
        "b.jsonl": 0,
    }
    done = CliRunner().invoke(
        app, ["diff", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), "--json"]
    )
    assert json.loads(done.output)["verdict"] == "drafts"
    assert CliRunner().invoke(app, ["clinic", str(tmp_path / "a.jsonl"), "--report"]).exit_code == 1


HEADER = {"format": "speclab.steps/1", "prompt_ids": [1, 2, 3]}
LINE = {
    "prefix_length": 3,
    "token": [7, 8, 9],
    "parent": [-1, 0, 0],
    "accepted": [2],
    "committed": [9, 4],
}
WRONG = [
    '{"prefix_length": "3"}', '{"prefix_length": 1152921504606846976}', '{"token": []}', '{"token": [[7], [8], [9]]}',
    '{"parent": [0, 0, 0]}', '{"parent": [-1, 1, 0]}', '{"accepted": [3]}', '{"accepted": [2, 2]}',
    '{"position": [3, 4]}',
    '{"mask": "AAAA/w=="}', '{"mask": "!"}', '{"hidden_prefix": [[0, 2, 3]]}', '{"log_prob": [0, 0.5, -1]}',
    '{"tokens": [7]}', '{"topk": [[[4, -0.1], [4, -3.0]], null, null]}', '{"seconds": {"draft": -1}}',
    '{"topk": [[[4, -0.1], [5, -0.2]], null, null]}', '{"topk": [[[4, -30.0], [5, -31.0]], null, null]}',
]  # fmt: skip
WRONG_HEADERS = [
    '{"prompt_ids": []}', '{"temperature": NaN}', '{"rule": "guess"}', '{"rule": "greedy", "temperature": 0.8}',
    '{"rule": "rejection"}', '{"position_offset": -99}', '{"colour": "red"}', '{"format": "speclab.steps/2"}',
]  # fmt: skip
CASES = [(0, each) for each in WRONG_HEADERS] + [(1, each) for each in WRONG]


@pytest.mark.parametrize(("number", "change"), CASES, ids=str)
def test_a_malformed_line_is_one_sentence(number, change, tmp_path):
    path = tmp_path / "run.jsonl"
    lines = [HEADER, LINE]
    lines[number] = lines[number] | json.loads(change)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(TraceError) as caught:
        speclab.load_steps(path)
    message = str(caught.value)
    assert f"line {number + 1}" in message
    foreign = ("\n", "pydantic", "input should", "tuple", "keyword argument")
    assert not any(word in message.lower() for word in foreign)
