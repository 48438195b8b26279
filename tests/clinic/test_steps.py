"""Steps of another decoder: each planted fault is found and explained, a healthy run has no finding."""

from __future__ import annotations

import copy
import json
import re
from functools import partial

import pytest
import torch
from support.outside_decoder import FAULTS, recorded
from support.pairs import PROMPT, pair_of, target_of
from support.recordings import ROOT, kinds, written
from support.records import ran
from support.refusals import refused

import speclab
from scripts.write_steps_format import PAGE
from speclab import clinic
from speclab.errors import CancelledError, SettingsError, TraceError


def assert_found(path, fault, family="llama", **more):
    kind, alone = FAULTS[fault]
    trace, _ = recorded(path, fault, family, **more)
    assert kinds(trace) == alone
    trace, pair = recorded(path, fault, family, whole=False, **more)
    assert kinds(trace) == set()
    report = clinic.report(trace, pair, tables=False)
    assert report.cause.kind == kind, report.cause
    assert report.findings[0] == report.cause
    if shift := re.search("[+-]([0-9])", fault):
        assert f" {shift[1]} " in report.cause.sentence


@pytest.mark.wide
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_explained(fault, tmp_path):
    assert_found(tmp_path / "run", fault, "mistral" if fault == "window" else "llama")


@pytest.mark.parametrize("fault", ["position +3", "exchanged", "stale", "token", "temperature"])
def test_sampled_runs_are_explained_too(fault, tmp_path):
    assert_found(tmp_path / "run", fault, "qwen3", temperature=0.8)


def test_the_engine_of_the_page_is_healthy_and_its_fault_is_the_mask(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8").partition("### An engine of your own")[2]
    code = text.partition("```python\n")[2].partition("```")[0]
    line = "        mask[2, held + 1] = HIDDEN\n"
    assert line in code
    for lines, found in ((code, set()), (code.replace(line, ""), {"mask"})):
        names = {}
        exec(lines, names)
        assert kinds(speclab.load_steps("run.jsonl"), names["pair"]) == found


def test_the_right_rows_in_another_order_give_the_same_answers(tmp_path):
    trace, pair = recorded(tmp_path / "run.jsonl", "reversed rows")
    assert kinds(trace) == {"slot"}
    assert clinic.explain(trace, pair) is None, "the answers are right"


@pytest.mark.wide
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
    assert told == sorted(told)
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


SHAPES = {
    "right": "2222",
    "first": "1222",
    "deep": "1212",
    "nowhere": "0000",
    "drift": "222001",
    "alike": "102102",
}
"""How many of two drafted tokens each pass accepts."""


@pytest.mark.parametrize("shape", SHAPES)
def test_the_control_names_what_the_curve_shows(shape, tmp_path):
    chain = ROOT | {"parent": [-1, 0, 1]}
    lines = []
    for accepted in map(int, SHAPES[shape]):
        path = {"accepted": [1, 2][:accepted], "committed": [8, 9][:accepted] + [7]}
        lines.append(chain | path)
        chain = chain | {"prefix_length": chain["prefix_length"] + accepted + 1}
    result = clinic.control(speclab.load_steps(written(tmp_path / "run.jsonl", *lines)))
    assert (result.shape, result.passed) == (shape, shape == "right")


def test_a_run_whose_draft_is_not_its_target_is_no_control(tmp_path):
    target = target_of("llama")
    own = speclab.load_pair(target=target, draft="self")
    chain = speclab.LinearSpeculation(draft_tokens=3)
    assert clinic.control(ran(own, chain, PROMPT, max_new_tokens=12)).passed
    for pair, strategy in (
        (pair_of("llama"), chain),
        (own, speclab.PromptLookup()),
        (own, speclab.Autoregressive()),
    ):
        with refused(SettingsError, 'draft="self"'):
            clinic.control(ran(pair, strategy, PROMPT, max_new_tokens=12))
    bare = ROOT | {"token": [7], "parent": [-1], "accepted": [], "committed": [4]}
    with refused(SettingsError, "--draft"):
        clinic.control(speclab.load_steps(written(tmp_path / "run.jsonl", bare)))


CONTRADICTIONS = {
    "mask": '{"mask": "4OCg"}',
    "prefix": '{"hidden_prefix": [[1, 1, 2]]}',
    "slot": '{"slot": [5, 5, 6]}',
    "path": '{"accepted": [1, 2], "committed": [8, 9, 4]}',
    "choice": '{"choice": [8, 1, 1]}',
    "choice, not the best": '{"choice": [9, 1, 4], "topk": [null, null, [[5, -0.1], [4, -3]]]}',
    "commit": '{"committed": [9, 4, 4]}',
    "commit, of another row": '{"choice": [9, 4, 1]}',
    "text": '{"prefix_length": 9}',
    "answer": '{"topk": [[[9, -0.1]], [[1, NaN]], [[2, -0.1]]]}',
    "position": '{"position": [3, 4, 5]}',
    "end": '{"committed": [9, 2], "choice": [9, 1, 2]}',
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_record_alone_says_what_is_wrong(name, tmp_path):
    kind = name.partition(",")[0]
    first = ROOT | json.loads(CONTRADICTIONS[name])
    second = ROOT | {"prefix_length": 5, "token": [2, 8, 9]}
    path = written(tmp_path / "run.jsonl", first, second, eos_ids=[2])
    findings = clinic.check(speclab.load_steps(path))
    (finding,) = [one for one in findings if one.kind == kind]
    # an engine that was asked to go on says so in the header
    assert ("ignore_eos" in finding.sentence) == (kind == "end")


@pytest.mark.parametrize(
    ("kept", "right"),
    [([3, 5], True), ([0, 1, 2, 3, 5], True), ([3, 4], False), ([0, 1, 2, 3, 4], False)]
    + [([0, 1, 3, 5], False), ([3, 9], False)],
)
def test_kept_slots_are_the_pass_s_or_the_whole_cache_s(kept, right, tmp_path):
    step = ROOT | {"slot": [3, 4, 5], "kept_slots": kept}
    trace = speclab.load_steps(written(tmp_path / "run.jsonl", step))
    assert kinds(trace) == (set() if right else {"slot"})


def test_a_refused_token_cannot_be_drawn_again(tmp_path):
    first = ROOT | {"accepted": [], "committed": [4]}
    second = ROOT | {"accepted": [], "committed": [8], "prefix_length": 4, "token": [4, 8, 9]}
    path = written(tmp_path / "run.jsonl", first, second, rule="rejection", temperature=0.8)
    (finding,) = clinic.check(speclab.load_steps(path))
    assert (finding.iteration, finding.node, finding.kind) == (1, 1, "choice")


def test_settings_of_engines_are_no_fault(tmp_path):
    first = ROOT | {"committed": [9, 2], "position": [10, 11, 11], "choice": [9, None, 2]}
    first["topk"] = [[[9, -0.01]], None, [[2, -0.01]]]  # a row without an answer
    second = ROOT | {"prefix_length": 5, "token": [2, 8, 9], "position": [12, 13, 13]}
    path = written(tmp_path / "run.jsonl", first, second, eos_ids=[2], ignore_eos=True)
    report = clinic.report(speclab.load_steps(path))
    assert report.findings == ()
    assert "+7" in report.notes[0]


GREEDY = {"do_sample": False}
LIBRARY = {
    "draft": GREEDY,
    "lookup": GREEDY | {"prompt_lookup_num_tokens": 3},
    "sampled": {"do_sample": True, "temperature": 0.7},
    "penalty": GREEDY | {"repetition_penalty": 1.5},
    "n-grams": GREEDY | {"no_repeat_ngram_size": 2},
    "ends inside the path": GREEDY | {"eos_token_id": 48},
    "ends with the path": GREEDY | {"max_new_tokens": 11},
}


@pytest.mark.wide
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
    assert (trace.steps[-1].bonus is None) == (how == "ends inside the path")
    assert clinic.check(trace) == clinic.check(trace, pair) == ()
    assert not model._forward_hooks


def test_a_recording_holds_one_call_and_says_if_it_holds_none(tmp_path):
    model = pair_of("llama").target.model
    ids = torch.tensor([PROMPT])
    once = partial(model.generate, ids, max_new_tokens=2, prompt_lookup_num_tokens=2)
    with speclab.record_generate(model, tmp_path / "run.jsonl"):
        once()
        with refused(SettingsError, "one call"):
            once()
    with (
        refused(TraceError, "folder that exists"),
        speclab.record_generate(model, tmp_path / "none" / "run.jsonl"),
    ):
        once()
    with (
        pytest.warns(UserWarning, match="was not written"),
        speclab.record_generate(model, tmp_path / "other.jsonl"),
    ):
        model.generate(ids, max_new_tokens=2)
