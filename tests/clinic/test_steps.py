"""Steps of another decoder: each planted fault is found and explained, a healthy run has no finding."""

from __future__ import annotations

import copy
import json
import re
from functools import partial

import pytest
import torch
from support.outside_decoder import FAULTS, recorded
from support.pairs import PROMPT, pair_of

import speclab
from speclab import clinic
from speclab.errors import CancelledError, SettingsError, SpeclabError, TraceError
from speclab.recorder import Recorder

ROOT = {
    "prefix_length": 3,
    "token": [7, 8, 9],
    "parent": [-1, 0, 0],
    "accepted": [2],
    "committed": [9, 4],
}


def assert_found(path, fault, family="llama", **more):
    kind, alone = FAULTS[fault]
    trace, _ = recorded(path, fault, family, **more)
    assert {finding.kind for finding in clinic.check(trace)} == alone
    trace, pair = recorded(path, fault, family, whole=False, **more)
    assert clinic.check(trace) == ()
    report = clinic.report(trace, pair, tables=False)
    explained = report.cause
    assert explained.kind == kind, explained
    assert report.findings[0] == explained
    if shift := re.search("[+-]([0-9])", fault):
        assert f" {shift[1]} " in explained.sentence


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_explained(fault, tmp_path):
    assert_found(tmp_path / "run", fault, "mistral" if fault == "window" else "llama")


@pytest.mark.parametrize("fault", ["position +3", "exchanged", "stale", "token", "temperature"])
def test_sampled_runs_are_explained_too(fault, tmp_path):
    assert_found(tmp_path / "run", fault, "qwen3", temperature=0.8)


def test_the_right_rows_in_another_order_give_the_same_answers(tmp_path):
    trace, pair = recorded(tmp_path / "run.jsonl", "reversed rows")
    assert {finding.kind for finding in clinic.check(trace)} == {"slot"}
    assert clinic.explain(trace, pair) is None, "the answers are right"


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "mistral", "gemma2", "gemma3_text", "opt", "qwen3", "gpt_neox"]
)
def test_a_healthy_run_has_no_finding(family, tmp_path):
    for seed, temperature in ((0, 0.0), (1, 0.8)):
        drawn = {"seed": seed, "temperature": temperature}
        trace, pair = recorded(tmp_path / "run.jsonl", family=family, **drawn)
        assert clinic.check(trace) == clinic.check(trace, pair) == ()
    assert speclab.nodes(trace).accepted.any()


def test_a_check_tells_how_far_it_is_and_can_be_ended(tmp_path):
    told = []
    trace, pair = recorded(tmp_path / "run.jsonl")
    clinic.check(trace, pair, lambda *progress: told.append(progress))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {*told} == {(step.index, len(trace.steps)) for step in trace.steps}
    wrong, _ = recorded(tmp_path / "run.jsonl", "final norm", whole=False)
    told.clear()

    def stop(*progress):
        told.append(progress)
        if len(told) == 12:  # while it explains
            raise CancelledError("Stopped.")

    with pytest.raises(CancelledError):
        clinic.check(wrong, pair, stop)
    assert len(told) == 12


def written(path, *lines, header=None):
    first = {"format": "speclab.steps/1", "prompt_ids": [1, 2, 3]} | (header or {})
    path.write_text("".join(json.dumps(line) + "\n" for line in (first, *lines)))
    return path


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    with pytest.raises(TraceError, match="no verification pass"):
        speclab.load_steps(written(path))
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(TraceError, match="allowed"):
        speclab.load_steps(path)
    path.write_bytes(b"\x00\xff\n{}\n")
    with pytest.raises(TraceError, match="not JSON"):
        speclab.load_steps(path)
    path.write_text('{"n_draft": 1, "n_accepted": 1, "pos": [{"tok": 5, "p": 0.9}]}\n')
    with pytest.raises(TraceError, match="speclab read"):
        speclab.load_steps(path)
    trace = speclab.load_steps(written(path, ROOT | {"choice": [9, 3000, 4]}))
    with pytest.raises(SettingsError, match="outside the 64"):
        clinic.check(trace, pair_of("llama"))
    with pytest.raises(TypeError, match="no field 'depth'"):
        Recorder(path, [1]).step(**ROOT, depth=[0, 1, 1])


SHAPES = {
    "right": [2, 2, 2, 2],
    "first": [1, 2, 2, 2],
    "deep": [1, 2, 1, 2],
    "nowhere": [0, 0, 0, 0],
    "drift": [2, 2, 2, 0, 0, 1],
    "alike": [1, 0, 2, 1, 0, 2],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_control_names_what_the_curve_shows(shape, tmp_path):
    lines, length = [], 3
    for accepted in SHAPES[shape]:
        token = {"token": [7, 8, 9], "parent": [-1, 0, 1], "prefix_length": length}
        path = [1, 2][:accepted]
        lines.append(token | {"accepted": path, "committed": [*[8, 9][:accepted], 7]})
        length += accepted + 1
    result = clinic.control(speclab.load_steps(written(tmp_path / "run.jsonl", *lines)))
    assert (result.shape, result.passed) == (shape, shape == "right")


def test_a_cut_last_line_is_left_out_and_said(tmp_path):
    path = written(tmp_path / "run.jsonl", ROOT, ROOT | {"prefix_length": 5, "token": [4, 1, 2]})
    path.write_bytes(path.read_bytes()[:-9])
    trace = speclab.load_steps(path)
    assert (len(trace.steps), trace.finished) == (1, "line 3 is incomplete and was left out")
    assert trace.steps[0].missing == speclab.load_steps(path).steps[0].missing != ()
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
    assert clinic.check(trace) == ()
    saved = speclab.load_trace(trace.save(tmp_path / "run.json.gz"))
    assert saved.steps[0].rows == step.rows
    assert speclab.views.tree(step)
    assert speclab.views.mask(step)


CONTRADICTIONS = {
    "mask": '{"mask": "4OCg"}',
    "prefix": '{"hidden_prefix": [[1, 1, 2]]}',
    "slot": '{"slot": [5, 5, 6]}',
    "path": '{"accepted": [1, 2], "committed": [8, 9, 4]}',
    "choice": '{"choice": [8, 1, 1]}',
    "commit": '{"committed": [9, 4, 4]}',
    "text": '{"prefix_length": 9}',
    "answer": '{"topk": [[[9, -0.1]], [[1, NaN]], [[2, -0.1]]]}',
    "position": '{"position": [3, 4, 5]}',
    "end": '{"committed": [9, 2], "choice": [9, 1, 2]}',
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_a_record_alone_says_what_is_wrong(kind, tmp_path):
    lines = [
        ROOT | json.loads(CONTRADICTIONS[kind]),
        ROOT | {"prefix_length": 5, "token": [2, 8, 9]},
    ]
    trace = speclab.load_steps(written(tmp_path / "run.jsonl", *lines, header={"eos_ids": [2]}))
    assert kind in {finding.kind for finding in clinic.check(trace)}


def test_a_refused_token_cannot_be_drawn_again(tmp_path):
    header = {"rule": "rejection", "temperature": 0.8}
    lines = [ROOT | {"accepted": [], "committed": [token]} for token in (4, 8)]
    lines[1] |= {"prefix_length": 4, "token": [4, 8, 9]}
    trace = speclab.load_steps(written(tmp_path / "run.jsonl", *lines, header=header))
    found = [(one.iteration, one.node, one.kind) for one in clinic.check(trace)]
    assert found == [(1, 1, "choice")]


def test_settings_of_engines_are_no_fault(tmp_path):
    first = ROOT | {"committed": [9, 2], "position": [10, 11, 11]}
    second = ROOT | {"prefix_length": 5, "token": [2, 8, 9], "position": [12, 13, 13]}
    header = {"eos_ids": [2], "ignore_eos": True}
    report = clinic.report(
        speclab.load_steps(written(tmp_path / "run.jsonl", first, second, header=header))
    )
    assert report.findings == ()
    assert "+7" in report.notes[0]


GREEDY = {"do_sample": False}
LIBRARY = {
    "draft": GREEDY,
    "lookup": GREEDY | {"prompt_lookup_num_tokens": 3},
    "sampled": {"do_sample": True, "temperature": 0.7},
    "penalty": GREEDY | {"repetition_penalty": 1.5},
    "n-grams": GREEDY | {"no_repeat_ngram_size": 2},
    "ends inside the path": GREEDY | {"max_new_tokens": 9},
    "ends with the path": GREEDY | {"max_new_tokens": 11},
}


@pytest.mark.parametrize("how", LIBRARY)
@pytest.mark.parametrize("pads", [0, 3])
def test_the_library_s_own_assisted_generation_is_healthy(how, pads, tmp_path):
    pair = pair_of("llama")
    model = pair.target.model
    path = tmp_path / "run.jsonl"
    ids = torch.tensor([[0] * pads + PROMPT])
    more = {"attention_mask": (torch.arange(len(ids[0])) >= pads).long()[None], "pad_token_id": 0}
    more |= {"max_new_tokens": 16, **LIBRARY[how]}
    if how != "lookup":
        more["assistant_model"] = copy.deepcopy(model) if "ends" in how else pair.draft.model
    with speclab.record_generate(model, path):
        text = model.generate(ids, **more)[0, pads:].tolist()
    trace = speclab.load_steps(path, pair)
    assert list(trace.prompt_ids) == PROMPT
    assert [*trace.prompt_ids, *trace.token_ids] == text
    assert trace.settings["temperature"] == more.get("temperature", 0)
    assert trace.models["processed"] == (how in ("penalty", "n-grams"))
    assert clinic.check(trace) == clinic.check(trace, pair) == ()
    assert not model._forward_hooks


def test_a_recording_holds_one_call_and_says_if_it_holds_none(tmp_path):
    model = pair_of("llama").target.model
    ids = torch.tensor([PROMPT])
    once = partial(model.generate, ids, max_new_tokens=2, prompt_lookup_num_tokens=2)
    with speclab.record_generate(model, tmp_path / "run.jsonl"):
        once()
        with pytest.raises(SpeclabError, match="one call"):
            once()
    nowhere = speclab.record_generate(model, tmp_path / "none" / "run.jsonl")
    with pytest.raises(TraceError, match="folder that exists"), nowhere:
        once()
    with (
        pytest.warns(UserWarning, match="was not written"),
        speclab.record_generate(model, tmp_path / "other.jsonl"),
    ):
        model.generate(ids, max_new_tokens=2)
