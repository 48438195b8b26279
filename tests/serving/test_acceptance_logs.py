"""Logs of acceptance: what each engine writes is read as it is meant, and what cannot be right is refused."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from traces import TREE, step_of, trace_of
from typer.testing import CliRunner

import speclab
from speclab import AcceptanceLog
from speclab.cli import app
from speclab.errors import SettingsError, TraceError
from speclab.serving.accepted import AcceptedStep, Logged

STEPS = [(3, 0), (3, 3), (3, 1), (2, 2), (3, 2), (1, 0), (3, 3)]
"""Drafted and accepted tokens of seven passes."""
DRAFTED, ACCEPTED = (sum(pair[side] for pair in STEPS) for side in (0, 1))
AT_DEPTH = [(5, 7), (4, 5), (2, 3)]
"""Of `STEPS`, by hand: at depth 1, 2, 3, the steps that accepted so deep, and those that tried a token there."""
HISTOGRAM = [2, 1, 2, 2]


def vllm(steps, **more) -> dict:
    """A response with metrics as vLLM's documentation describes them, level detailed."""
    drafted, accepted = [list(column) for column in zip(*steps, strict=True)] if steps else ([], [])
    said = {
        "acceptance_histogram": [accepted.count(count) for count in range(4)],
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
        "per_step_accepted": accepted,
        "per_step_drafted": drafted,
    }
    return {"id": "one", "choices": [{"text": " and on"}], "metrics": {"speculative_decoding": said | more}}


def vllm_line(accepted, drafted, rates, at="05-18 11:19:54") -> str:
    figures = {
        "Mean acceptance length": f"{1 + sum(rates):.2f}",
        "Accepted throughput": "6.76 tokens/s",
        "Drafted throughput": "8.37 tokens/s",
        "Accepted": f"{accepted} tokens",
        "Drafted": f"{drafted} tokens",
        "Per-position acceptance rate": ", ".join(f"{rate:.3f}" for rate in rates),
        "Avg Draft acceptance rate": f"{100 * accepted / drafted:.1f}%",
    }
    said = ", ".join(f"{name}: {value}" for name, value in figures.items())
    return f"(APIServer pid=1) INFO {at} [metrics.py:101] SpecDecoding metrics: {said}\n"


def counters(prefix, drafts, drafted, accepted, at) -> str:
    name = f"{prefix}:spec_decode_num"
    rows = [("drafts", drafts), ("draft_tokens", drafted), ("accepted_tokens", accepted)]
    lines = [f'{name}_{what}_total{{engine="0"}} {float(count)}' for what, count in rows]
    lines += [f'{name}_accepted_tokens_per_pos_total{{engine="0",position="{i}"}} {n}' for i, n in enumerate(at)]
    return "\n".join(["# HELP what it counts", *lines, f'{name}_drafts_created{{engine="0"}} 1.7e9', ""])


@pytest.fixture
def load(tmp_path):
    def opened(content: str | bytes | dict | list, name: str = "log") -> AcceptanceLog:
        path = tmp_path / name
        data = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return speclab.load_acceptance(path)

    return opened


def by_depth(log: AcceptanceLog) -> list[tuple[int, int]]:
    return [(one.accepted, one.tried) for one in log.acceptance_by_depth]


def assert_sums(log: AcceptanceLog, engine: str) -> None:
    """It is of that engine, and of `STEPS`."""
    assert log.engine == engine
    assert (log.iterations, log.drafted, log.accepted) == (len(STEPS), DRAFTED, ACCEPTED)
    assert log.tokens_per_iteration == pytest.approx(1 + ACCEPTED / len(STEPS))
    assert log.acceptance_rate == pytest.approx(ACCEPTED / DRAFTED)
    assert all(words in repr(log) for words in (f"{1 + ACCEPTED / len(STEPS):.2f} tokens", f"{ACCEPTED / DRAFTED:.0%}"))


def test_vllms_arrays_of_steps(load):
    log = load(vllm(STEPS))
    assert_sums(log, "vllm")
    assert [(step.drafted, step.accepted) for step in log.steps] == STEPS
    assert by_depth(log) == AT_DEPTH, "a step that drafted less deep did not try"
    assert log.entries[0].output == " and on"
    first = log.acceptance_by_depth[0]
    assert (first.share, first.conditional) == (5 / 7, 5 / 7)
    assert log.acceptance_by_depth[2].share == 2 / 7


@pytest.mark.parametrize("streamed", [False, True])
def test_responses_one_per_line_and_the_last_of_a_stream_counts(load, streamed):
    prefix = "data: " if streamed else ""
    others = [{"id": "two", "choices": []}, vllm(STEPS[:3]), vllm(STEPS)]
    text = "\n".join([prefix + json.dumps(one) for one in others] + ["data: [DONE]"] * streamed)
    log = load(text)
    assert_sums(log, "vllm")
    assert len(log.entries) == 1


def test_a_histogram_alone_has_counts_by_depth_but_takes_every_draft_for_as_deep(load):
    summary = vllm(STEPS, per_step_accepted=None, per_step_drafted=None)
    log = load([summary])
    assert_sums(log, "vllm")
    assert log.steps == ()
    assert by_depth(log) == [(5, 7), (4, 5), (2, 4)]
    assert not any(one.exact for one in log.acceptance_by_depth)
    with refused(SettingsError, "every step"):
        log.save("nowhere.json")


def test_vllms_lines_give_counts_back_from_their_rates_and_a_time(load):
    between = "INFO 05-18 11:20:00 [loggers.py:5] Engine 000: Running: 1 reqs\n"
    second = vllm_line(10, 30, [0.6, 0.3, 0.1], "05-18 11:20:04").replace("Accepted t", "Current depth: 3, Accepted t")
    log = load(vllm_line(12, 18, [0.833, 0.667, 0.5]) + between + second)
    assert [entry.iterations for entry in log.entries] == [6, 10]
    assert [entry.accepted_at for entry in log.entries] == [(5, 4, 3), (6, 3, 1)]
    assert log.entries[1].seconds - log.entries[0].seconds == 10
    assert not log.estimated
    assert log.tokens_per_iteration == 1 + 22 / 16
    old = load("INFO SpecDecoding metrics: Draft acceptance rate: 88.8%, Accepted: 8 tokens, Drafted: 9 tokens")
    assert old.acceptance_rate == 8 / 9


def test_rates_from_which_no_whole_counts_follow_are_called_estimates(load):
    log = load(vllm_line(676, 1000, [0.921, 0.828, 0.674]))
    assert log.estimated
    assert any("rounded" in note for note in log.notes)
    assert log.entries[0].iterations == round(676 / (0.921 + 0.828 + 0.674))


@pytest.mark.parametrize(("prefix", "engine"), [("vllm", "vllm"), ("llamacpp", "llama.cpp")])
def test_counters_and_a_second_reading_of_them_adds_what_came_since(load, prefix, engine):
    log = load(counters(prefix, len(STEPS), DRAFTED, ACCEPTED, [5, 4, 2]))
    assert_sums(log, engine)
    assert [one.accepted for one in log.acceptance_by_depth] == [5, 4, 2]
    twice = load(counters(prefix, 2, 6, 3, [2, 1, 0]) + counters(prefix, len(STEPS), DRAFTED, ACCEPTED, [5, 4, 2]))
    assert_sums(twice, engine)
    assert [entry.iterations for entry in twice.entries] == [2, 5]
    restarted = load(counters(prefix, 9, 27, 9, [5, 3, 1]) + counters(prefix, 2, 6, 3, [2, 1, 0]))
    assert [entry.iterations for entry in restarted.entries] == [9, 2], "a server that began anew counts from 0"


META = {
    "completion_tokens": len(STEPS) + ACCEPTED, "spec_accept_length": 1 + ACCEPTED / len(STEPS),
    "spec_accept_rate": ACCEPTED / DRAFTED, "spec_verify_ct": len(STEPS),
}  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        ("spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_correct_drafts_histogram"),
        ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram"),
    ],
)
def test_sglangs_counts_of_a_request_by_their_names_of_two_ages(load, names):
    meta = META | dict(zip(names, (ACCEPTED, DRAFTED, HISTOGRAM), strict=True))
    for log in (load({"text": "x", "meta_info": meta}), load({"sglext": {"spec_tokens_details": meta}, "choices": []})):
        assert_sums(log, "sglang")
        assert [one.accepted for one in log.acceptance_by_depth] == [5, 4, 2]
    logged = load(f"[2026-04-05 20:02:51] Finish: obj=GenerateReqInput(rid='57'), out={{'meta_info': {meta!r}}}\n")
    assert_sums(logged, "sglang")
    del meta[names[2]]
    assert_sums(load([{"meta_info": meta}]), "sglang")


DECODE = (
    "[2026-04-05 20:02:{:02} TP0] Decode batch, #running-req: 4, #token: 38, token usage: 0.00, {}, cuda graph: True, "
    "gen throughput (token/s): 54.63, #queue-req: 0\n"
)


def test_sglangs_decode_lines_are_rates_over_time(load):
    log = load(
        DECODE.format(1, "accept len: 3.00, accept rate: 0.50")
        + DECODE.format(9, "accept len: 2.00, accept rate: 0.25")
    )
    assert (log.engine, log.tokens_per_iteration, log.acceptance_rate) == ("sglang", 2.5, 0.375)
    assert (log.iterations, log.acceptance_by_depth) == (None, ())
    assert log.entries[1].seconds - log.entries[0].seconds == 8
    old = load(DECODE.format(1, "accept len: 1.00, accept rate: 0.11"))
    assert any("bonus" in note for note in old.notes)
    idle = DECODE.format(0, "accept len: 0.00, accept rate: 0.00")
    assert len(load(idle + DECODE.format(1, "accept len: 2.25")).entries) == 1
    assert load(DECODE.format(1, "accept len: 2.25")).acceptance_rate is None
    assert load({"internal_states": [{"avg_spec_accept_length": 2.5}]}).tokens_per_iteration == 2.5
    gauges = 'sglang:spec_accept_length{tp_rank="0"} 2.8\nsglang:spec_accept_rate{tp_rank="0"} 0.6\n'
    assert load(gauges).tokens_per_iteration == 2.8


SLOT = "0.06.896.{} I slot print_timing: id  1 | task {} | "
COUNTS, RATES = "( 11 accepted /    18 generated)", "(0.714, 0.571, 0.286)"


@pytest.mark.parametrize(
    "words",
    [
        f"draft acceptance = 0.6 {COUNTS}, mean acceptance length =  2.57, acceptance rate per position = {RATES}\n",
        f"draft acceptance = 0.61111 {COUNTS}, mean len =  2.57\n{SLOT.format('018', 7)}     acc per pos = {RATES}\n",
    ],
)
def test_llama_servers_lines_of_two_ages(load, words):
    sums = "I statistics draft: #calls(b,g,a) = 1 9 9, #gen drafts = 9, #gen tokens = 99, #acc tokens = 88\n"
    log = load(SLOT.format("015", 7) + words + sums)
    assert_sums(log, "llama.cpp")
    assert [one.accepted for one in log.acceptance_by_depth] == [5, 4, 2]
    assert len(log.entries) == 1, "sums of all requests are not one more"
    assert "task 7" in log.entries[0].name
    assert log.entries[0].seconds == pytest.approx(6.896015)
    assert load(sums).drafted == 99


def test_llama_cpps_totals(load):
    old = load("draft acceptance rate = 0.57576 (  171 accepted /   297 generated)\n")
    assert (old.accepted, old.drafted, old.tokens_per_iteration) == (171, 297, None)
    ended = load("n_draft   = 8\nn_predict = 100\nn_drafted = 90\nn_accept  = 60\naccept    = 66.667%\n")
    timed = load({"content": "x", "timings": {"predicted_n": 100, "draft_n": 90, "draft_n_accepted": 60}})
    for log in (ended, timed):
        assert (log.engine, log.acceptance_rate, log.tokens_per_iteration) == ("llama.cpp", 2 / 3, 2.5)
        assert any("without a draft" in note for note in log.notes)


# Our own schema

naturals = st.integers(0, 9)
steps_of = st.lists(
    st.tuples(naturals, naturals, naturals).map(sorted).map(lambda n: AcceptedStep(n[2], n[0], n[1])), max_size=6
)
texts = st.text(st.characters(codec="utf-8"), max_size=9)
logs = st.builds(
    lambda engine, requests, settings: AcceptanceLog(
        engine, tuple(Logged.of_steps(steps, prompt=a, output=b, name=c) for steps, a, b, c in requests), "x", settings
    ),
    texts,
    st.lists(st.tuples(steps_of, texts, texts, texts), min_size=1, max_size=3),
    st.dictionaries(texts, st.one_of(st.integers(-9, 9), st.booleans(), texts, st.none()), max_size=2),
)


@given(logs)
def test_what_is_saved_is_opened_again(tmp_path_factory, log):
    path = tmp_path_factory.mktemp("saved") / "log.json"
    assert speclab.load_acceptance(log.save(path)) == log
    assert json.loads(path.read_text())["schema"] == "speclab-acceptance"


@given(logs)
def test_acceptance_by_depth_is_counted_step_by_step(log):
    steps = [step for step in log.steps if step.drafted]
    for one in log.acceptance_by_depth:
        assert one.accepted == sum(step.accepted >= one.depth for step in steps)
        assert one.tried == sum(step.depth >= one.depth and step.accepted + 1 >= one.depth for step in steps)
    assert sum(one.accepted for one in log.acceptance_by_depth) == log.accepted


def test_a_trace_becomes_a_log(tmp_path):
    trace = trace_of(step_of(TREE), step_of(TREE, 1))
    log = AcceptanceLog.of(trace)
    counts = [step.counts for step in trace.steps]
    assert [(step.drafted, step.accepted, step.deepest) for step in log.steps] == [
        (one.drafted, one.accepted, one.longest_path) for one in counts
    ]
    assert log.settings["strategy"] == "DynaTree"
    assert speclab.load_acceptance(log.save(tmp_path / "log.json")) == log


SAVED = {
    "schema": "speclab-acceptance",
    "version": 1,
    "engine": "mine",
    "requests": [{"steps": [{"drafted": 4, "accepted": 2}]}],
}


def saved(**changes) -> dict:
    return SAVED | changes


def test_the_least_file_of_the_schema_and_one_with_more_fields_than_known(load):
    assert load(SAVED).tokens_per_iteration == 3
    assert load(saved(author="me")).engine == "mine"


# What is refused

STEP = {"drafted": 2, "accepted": 3}
BAD = {
    "empty": (b"", "empty"),
    "blank": (b" \n ", "empty"),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0", "binary"),
    "gzipped": (gzip.compress(b"x"), "load_trace"),
    "of something else": (b"GET / 200\nGET /metrics 200\n", "nothing of acceptance"),
    "JSON of something else": (b'{"choices": [{"text": "x"}]}', "nothing of acceptance"),
    "metrics that were off": (b'{"metrics": {"speculative_decoding": null}}', "nothing of acceptance"),
    "cut JSON": (json.dumps(vllm(STEPS))[:-20].encode(), "cut short"),
    "cut JSON lines": (json.dumps(vllm(STEPS)).encode() + b"\n" + json.dumps(vllm(STEPS))[:-9].encode(), "line 2"),
    "a cut line": (b"INFO 05-18 SpecDecoding metrics: Mean acc", "line 1"),
    "newer": (json.dumps(saved(version=2)).encode(), "upgrade"),
    "another schema": (json.dumps(saved(schema="other")).encode(), "speclab-acceptance"),
    "no steps": (json.dumps(saved(requests=[{}])).encode(), "requests.0.steps"),
    "no requests": (json.dumps(saved(requests=[])).encode(), "no requests"),
    "negative": (json.dumps(saved(requests=[{"steps": [{"drafted": -1, "accepted": 0}]}])).encode(), "0.drafted"),
    "more than drafted": (json.dumps(saved(requests=[{"steps": [STEP]}])).encode(), "3 of 2"),
    "too deep": (json.dumps(saved(requests=[{"steps": [STEP | {"accepted": 1, "depth": 3}]}])).encode(), "depth 3"),
    "vllm, more than drafted": (json.dumps(vllm([(3, 4)])).encode(), "4 of 3"),
    "vllm, negative": (json.dumps(vllm([(3, -1)])).encode(), "not -1"),
    "vllm, arrays of two lengths": (json.dumps(vllm(STEPS, per_step_drafted=[1])).encode(), "per_step_drafted 1"),
    "vllm, another sum": (json.dumps(vllm(STEPS, per_step_accepted=None, num_spec_steps=9)).encode(), "9 are said"),
    "vllm line, more than drafted": (vllm_line(19, 18, [0.9]).encode(), "line 1"),
    "vllm line, negative": (vllm_line(12, 18, [0.9]).replace("Accepted: 12", "Accepted: -12").encode(), "-12"),
    "a rate of 2": (vllm_line(12, 18, [2.0]).encode(), "outside 0 to 1"),
    "sglang, below 1": (DECODE.format(1, "accept len: 0.50").encode(), "below 1"),
    "llama.cpp, more than drafted": (b"draft acceptance = 1.5 ( 9 accepted / 6 generated)", "9 tokens"),
    "llama.cpp, negative": (b"draft acceptance = 0.5 ( 3 accepted / -6 generated)", "not -6"),
    "timings with a text": (b'{"timings": {"draft_n": "many", "draft_n_accepted": 1}}', "whole number"),
    "a rate that is a text": (b"SpecDecoding metrics: Mean acceptance length: two, Accepted: 3 tokens", "no number"),
    "a counter without an end": (b"vllm:spec_decode_num_drafts_total 1e999\n", "1e999"),
    "a negative counter": (b"vllm:spec_decode_num_drafts_total -1\n", "-1"),
    "two engines": ((vllm_line(9, 9, [1.0]) + DECODE.format(1, "accept len: 2.00")).encode(), "one engine"),
    "a histogram without an end": (json.dumps({"acceptance_histogram": [0] * 9999}).encode(), "2048"),
    "a draft without an end": (json.dumps(vllm([(1 << 50, 1 << 50)])).encode(), "2048"),
    "a length that is a text": (b'{"meta_info": {"spec_verify_ct": 2, "spec_accept_length": "x"}}', "must be a number"),
    "depths that grow": (counters("vllm", 4, 12, 5, [1, 4]).encode(), "at depth"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_right_is_refused_in_one_sentence(load, name):
    content, said = BAD[name]
    with refused(TraceError, said):
        load(content, "l")


def test_a_file_too_large_a_line_without_an_end_and_a_folder(tmp_path, load, monkeypatch):
    path = tmp_path / "large"
    path.write_text(vllm_line(10, 30, [0.6, 0.3, 0.1]) * 9)
    with refused(TraceError, "100 allowed"):
        speclab.load_acceptance(path, max_bytes=100)
    with refused(TraceError, "folder"):
        speclab.load_acceptance(tmp_path)
    with refused(TraceError, "No such file"):
        speclab.load_acceptance(tmp_path / "none")
    with refused(TraceError, "no path"):
        speclab.load_acceptance(None)
    monkeypatch.setattr("speclab.serving.acceptance.LINE", 1000)
    with refused(TraceError, "line 2"):
        load("short\n" + "x" * 2000)
    monkeypatch.setattr("speclab.serving.acceptance.DOCUMENT", 1000)
    with refused(TraceError, "one JSON document"):
        load({"a": "x" * 2000})
    monkeypatch.setattr("speclab.serving.engine_logs.MOST", 5)
    with refused(TraceError, "split"):
        speclab.load_acceptance(path)


def test_the_lab_opens_traces_and_says_what_opens_a_log(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(vllm_line(10, 30, [0.6, 0.3, 0.1]))
    with refused(TraceError, "load_acceptance"):
        speclab.load_trace(path)


@pytest.mark.parametrize(
    ("words", "said"),
    [("SpecDecoding metrics: " + "A" * 10**6, "cut short"), ("statistics a: #acc tokens " * 10**5, "nothing")],
)
def test_a_line_that_is_made_to_be_slow_is_refused_like_any_other(load, words, said):
    with refused(TraceError, said):
        load(words)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_damage_is_refused_or_read(tmp_path_factory, noise, at):
    path = tmp_path_factory.mktemp("damaged") / "l"
    whole = "".join([vllm_line(10, 30, [0.6, 0.3, 0.1]), json.dumps(vllm(STEPS))]).encode()
    path.write_bytes(whole[:at] + noise + whole[at + len(noise) :])
    with suppress(TraceError):
        assert speclab.load_acceptance(path).entries


def test_the_command_shows_logs_below_each_other(tmp_path):
    paths = [tmp_path / name for name in ("a.log", "b.json")]
    paths[0].write_text(vllm_line(10, 30, [0.6, 0.3, 0.1]))
    paths[1].write_text(json.dumps(vllm(STEPS)))
    done = CliRunner().invoke(app, ["acceptance", *map(str, paths)], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert all(word in done.stdout for word in ("a.log", "b.json", "60.0%", f"{5 / 7:.1%}", "2.00", "2.57"))
    wrong = CliRunner().invoke(app, ["acceptance", str(tmp_path / "none")])
    assert wrong.exit_code == 1
