"""Files of steps: the page of their fields, what is wrong with a line, and how rows are put in order."""

from __future__ import annotations

import json

import pytest
from support.pairs import pair_of
from support.recordings import ROOT, kinds, written
from support.refusals import refused

import speclab
from scripts.write_steps_format import PAGE, page
from speclab.errors import SettingsError, TraceError
from speclab.recorder import Recorder


def test_the_page_has_the_fields():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/write_steps_format.py"


WRONG_HEADERS = [
    '{"prompt_ids": []}',
    '{"temperature": NaN}',
    '{"rule": "guess"}',
    '{"rule": "greedy", "temperature": 0.8}',
    '{"rule": "rejection"}',
    '{"position_offset": -99}',
    '{"colour": "red"}',
    '{"format": "speclab.steps/2"}',
]
WRONG = [
    '{"prefix_length": "3"}',
    '{"prefix_length": 1152921504606846976}',
    '{"token": []}',
    '{"token": [[7], [8], [9]]}',
    '{"parent": [0, 0, 0]}',
    '{"parent": [-1, 1, 0]}',
    '{"accepted": [3]}',
    '{"accepted": [2, 2]}',
    '{"position": [3, 4]}',
    '{"mask": "AAAA/w=="}',
    '{"mask": "!"}',
    '{"hidden_prefix": [[0, 2, 3]]}',
    '{"hidden_prefix": [[3, 0, 1]]}',
    '{"log_prob": [0, 0.5, -1]}',
    '{"tokens": [7]}',
    '{"topk": [[[4, -0.1], [4, -3.0]], null, null]}',
    '{"seconds": {"draft": -1}}',
    '{"topk": [[[4, -0.1], [5, -0.2]], null, null]}',
    '{"topk": [[[4, -30.0], [5, -31.0]], null, null]}',
]


@pytest.mark.parametrize("change", WRONG_HEADERS + WRONG)
def test_a_malformed_line_is_one_sentence(change, tmp_path):
    header = change in WRONG_HEADERS
    fields = json.loads(change)
    path = tmp_path / "run.jsonl"
    written(path, ROOT if header else ROOT | fields, **(fields if header else {}))
    with pytest.raises(TraceError, match="line 1" if header else "line 2") as caught:
        speclab.load_steps(path)
    message = str(caught.value).lower()
    foreign = ("\n", "pydantic", "input should", "tuple", "keyword argument")
    assert not any(word in message for word in foreign)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    files = {
        b"\x00\xff\n{}\n": "not JSON",
        b'{"n_draft": 1, "n_accepted": 1, "pos": [{"tok": 5, "p": 0.9}]}\n': "speclab read",
        written(path).read_bytes(): "no verification pass",
        written(path, ROOT).read_bytes()[:-9]: "cut",
    }
    for content, words in files.items():
        path.write_bytes(content)
        with refused(TraceError, words):
            speclab.load_steps(path)
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)
    with refused(TraceError, "allowed"):
        speclab.load_steps(path)
    trace = speclab.load_steps(written(path, ROOT | {"choice": [9, 3000, 4]}))
    with refused(SettingsError, "outside the 64"):
        kinds(trace, pair_of("llama"))
    with refused(TraceError, "outside the vocabulary"):
        speclab.load_steps(path, pair_of("llama"))
    with pytest.raises(TypeError, match="no field 'depth'"):
        Recorder(path, [1]).step(**ROOT, depth=[0, 1, 1])


def test_a_cut_last_line_is_left_out_and_said(tmp_path):
    path = written(tmp_path / "run.jsonl", ROOT, ROOT | {"prefix_length": 5, "token": [4, 1, 2]})
    path.write_bytes(path.read_bytes()[:-9])
    trace = speclab.load_steps(path)
    assert len(trace.steps) == 1
    assert "line 3" in trace.finished
    assert "choice" in trace.steps[0].missing
    assert trace.token_ids == [7, 9, 4]


def test_rows_in_another_order_are_put_breadth_first(tmp_path):
    deep = {
        "token": [7, 8, 5, 9],
        "parent": [-1, 0, 1, 0],
        "accepted": [3],
        "position": [3, 4, 5, 4],
    }
    trace = speclab.load_steps(written(tmp_path / "run.jsonl", ROOT | deep))
    step = trace.steps[0]
    assert (step.rows, step.accepted, step.position) == ((0, 1, 3, 2), (2,), (3, 4, 4, 5))
    assert [node.kv_slot for node in step.nodes] == [3, 4, 6, 5], (
        "rows are written in the file's order"
    )
    assert kinds(trace) == set()
    saved = speclab.load_trace(trace.save(tmp_path / "run.json.gz"))
    assert saved.steps[0].rows == step.rows
    assert speclab.views.tree(step)
    assert speclab.views.mask(step)
