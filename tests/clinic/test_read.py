"""What engines say of speculative decoding in their responses."""

from __future__ import annotations

import json

import pytest
from support.command import speclab_command
from support.refusals import refused

import speclab
from speclab import clinic
from speclab.errors import TraceError

# vLLM's docs/features/speculative_decoding/acceptance_metrics.md, "detailed"
METRICS = """{"speculative_decoding": {"mean_acceptance_length": 2.33, "draft_acceptance_rate": 0.5,
"acceptance_histogram": [1, 1, 0, 1], "num_spec_steps": 3, "num_accepted_draft_tokens": 4,
"num_draft_tokens": 8, "num_spec_tokens": 3, "per_step_accepted": [3, 0, 1], "per_step_drafted": [3, 3, 2]}}"""
WORDS = ["Once", " upon", " a", " time", " there", " was", " a"]
CONTENT = json.dumps([{"token": word} for word in WORDS])
VLLM = f'{{"choices": [{{"logprobs": {{"content": {CONTENT}}}}}], "metrics": {METRICS}}}'
# SGLang's fill_spec_decoding_meta
SGLANG = """{"text": "Hi", "meta_info": {"completion_tokens": 12, "spec_verify_ct": 7,
"spec_num_correct_drafts": 5, "spec_num_proposed_drafts": 21, "spec_correct_drafts_histogram": [4, 2, 0, 1]}}"""
# AIPerf's SpecDecodeAcceptanceRecord
AIPERF = """{"spec_decode_acceptance": {"engine": "vllm", "acceptance_histogram": {"0": 3, "2": 2},
"num_accepted_draft_tokens": 4, "num_draft_tokens": 15, "num_spec_steps": 5, "num_spec_tokens": 3}}"""
# llama.cpp's result_timings::to_json, and server_slot::print_timings
TIMINGS = '{"content": "x", "timings": {"predicted_n": 20, "draft_n": 16, "draft_n_accepted": 14}}'
LOG = """srv  update_slots: all slots are idle
slot print_timing: id  0 | draft acceptance = 0.84783 (   39 accepted /    46 generated), mean len = 2.70
"""
DUMP = """{"n_draft": 2, "n_accepted": 1, "pos": [{"tok": 5}, {"tok": 7}]}
{"n_draft": 2, "n_accept": 2, "tgt_tok": [5, 7, 9]}
{"n_draft": 2, "n_accept": 2, "replay": true}"""


def line(text):
    return text.replace("\n", " ") + "\n"


@pytest.fixture
def responses(tmp_path):
    """What is read of a file with a text."""
    path = tmp_path / "response"

    def read(text, pair=None):
        path.write_text(text, encoding="utf-8")
        return clinic.read(path, pair)

    return read


@pytest.mark.parametrize(
    ("text", "accepted", "drafted", "hazards"),
    [
        (json.dumps(json.loads(VLLM), indent=2), 4, 8, "2/3 1/2 1/1"),
        (f"data: {line(VLLM)}\ndata: [DONE]\n", 4, 8, "2/3 1/2 1/1"),
        (line(SGLANG), 5, 21, "3/7 1/3 1/1"),
        (line(AIPERF), 4, 15, "2/5 2/2 0/2"),
        (TIMINGS, 14, 16, ""),
        (LOG, 39, 46, ""),
        (DUMP, 3, 4, "2/2 1/2"),
    ],
    ids=["vLLM", "stream", "SGLang", "AIPerf", "llama.cpp", "log", "dump"],
)
def test_each_engines_response_has_its_acceptance(text, accepted, drafted, hazards, responses):
    (response,) = responses(text)
    assert (response.accepted, response.drafted) == (accepted, drafted)
    rows = response.hazards.values()
    assert " ".join([f"{row.accepted}/{row.looked}" for row in rows]) == hazards
    assert all(row.low <= row.survival <= row.high for row in rows)
    assert ("passes" in response.lacks) == (not hazards)
    assert json.loads(json.dumps(response.as_dict()))["accepted"] == accepted


def test_the_words_that_came_free_are_those_of_the_drafts(responses):
    (response,) = responses(line(VLLM))
    assert response.text() == "Once|[ upon a time] there| was|[ a]|"
    assert [row.accepted for row in response.parts] == [1, 0, 1]
    (response,) = responses(line(VLLM).replace(CONTENT, CONTENT[:-1] + ", " + CONTENT[1:]))
    assert "unlisted" in response.lacks, "a pass without a draft is not listed"
    assert "upon" not in str(response)


def test_lines_of_many_requests_are_one_response_each(tmp_path):
    path = tmp_path / "lines.jsonl"
    other = SGLANG.replace("Hi", "Hi\u2028")  # a separator that JSON allows in a text
    path.write_text(line(other) + line(AIPERF) + line(SGLANG), encoding="utf-8")
    assert [response.engine for response in clinic.read(path)] == ["SGLang", "vLLM", "SGLang"]
    done = speclab_command("read", path, "--json")
    assert [each["accepted"] for each in json.loads(done.output)] == [5, 4, 5]


def test_passes_and_tokens_alone_are_what_is_said(responses):
    text = '{"meta_info": {"completion_tokens": 12, "spec_verify_ct": 5}}'
    (response,) = responses(text)
    assert (response.accepted, response.verified, response.written) == (None, 5, 12)
    assert {"accepted", "passes"} <= {*response.lacks}
    assert "2.40 tokens per pass" in str(response)
    assert response.as_dict()["accepted"] is None


def test_a_list_of_responses_is_read(responses):
    both = responses(f"[{SGLANG}, {VLLM}]")
    assert [(each.engine, each.accepted) for each in both] == [("SGLang", 5), ("vLLM", 4)]
    assert both[1].tokens == tuple(WORDS)


def test_passes_alone_have_no_need_of_a_histogram(responses):
    (response,) = responses('{"per_step_accepted": [3, 0, 1], "per_step_drafted": [3, 3, 2]}')
    assert (response.accepted, response.drafted, response.lacks) == (4, 8, ("tokens",))
    (response,) = responses('{"per_step_accepted": [3, 0, 1]}')
    assert (response.accepted, response.drafted) == (4, 0)
    assert "lengths" in response.lacks


@pytest.mark.model
def test_ids_are_written_by_the_targets_tokenizer(responses):
    pair = speclab.load_pair()
    ids = pair.encode("".join(WORDS))
    text = line(f'{{"choices": [{{"token_ids": {ids}}}], "metrics": {METRICS}}}')
    (response,) = responses(text, pair)
    assert "".join(response.tokens) == "".join(WORDS)
    assert "tokens" in responses(text)[0].lacks


WRONG = {
    "no json": "line 2",
    '{"choices": []}': "says nothing",
    '{"acceptance_histogram": [1], "per_step_accepted": ["two"]}': "line 2",
    '{"acceptance_histogram": [1], "per_step_accepted": [2], "per_step_drafted": [1]}': "2 of 1",
    '{"acceptance_histogram": 5}': "vLLM",
    '{"n_accepted": 2, "n_draft": 1}': "2 of 1",
    '{"n_accepted": 2, "pos": 10}': "pos is not a list",
    '{"n_accepted": -2, "n_draft": 3}': "n_accepted has -2",
    '{"acceptance_histogram": [4, -1]}': "histogram has -1",
    '{"acceptance_histogram": {"two": 1}}': "'two'",
    '{"per_step_accepted": [1, 1], "per_step_drafted": [3]}': "1 numbers for 2 passes",
    '{"spec_verify_ct": 2, "choices": [{"logprobs": {"content": [5]}}]}': "SGLang",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_response_is_one_sentence(text, responses, tmp_path):
    with refused(TraceError, WRONG[text]):
        responses(f'{{"a": 1}}\n{text}\n')
    with refused(TraceError, "none.json"):
        clinic.read(tmp_path / "none.json")
