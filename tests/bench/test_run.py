"""A measurement on tiny models: rounds, equality, failures, cuts, and going on after a stop."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

import pytest
import torch
from heads import random_head
from refusals import refused
from table_runner import mixed_probs, random_probs, table_pair
from tiny import tiny
from words import word_tokenizer

from speclab.bench import run as running
from speclab.bench.call import call
from speclab.bench.protocol import DRAFT, Method, Protocol, methods
from speclab.bench.result import PARQUET, RUN, read_results
from speclab.bench.run import finish, measure, open_run, plan, run, turned
from speclab.bench.workloads import Workload
from speclab.drafters.chain import LinearSpeculation
from speclab.drafters.draft_head import DraftHead
from speclab.drafters.dynatree import DynaTree
from speclab.engine.exactness import TOLERANCE
from speclab.errors import MeasurementError
from speclab.models.pair import ModelPair, load_pair
from speclab.prompts import Prompt
from speclab.settings import SessionSettings

pytestmark = pytest.mark.model

PLAIN = methods()["plain"]
OTHERS = tuple(method for name, method in methods().items() if name.startswith("transformers"))
SMALL = Protocol(
    name="small",
    title="Two methods",
    methods=(PLAIN, Method(name="chain", strategy=LinearSpeculation(draft_tokens=3))),
    max_new_tokens=8,
)
PROMPTS = Workload("words", (Prompt("a", "prose", "w1 w2 w3"), Prompt("b", "code", "w4 w5 w6 w7")))


def table_models() -> ModelPair:
    """Tables in place of models, for tests that need no forward pass."""
    probs = random_probs(64, 1)
    pair = table_pair(probs, mixed_probs(probs, random_probs(64, 2), 0.3), 64, context=256)
    return replace(pair, tokenizer=word_tokenizer(64))


@pytest.fixture
def pair() -> ModelPair:
    return table_models()


@pytest.fixture(scope="module")
def models() -> ModelPair:
    target = tiny("gpt_neox")
    return load_pair(
        target=target, draft=tiny("llama", seed=1), heads=random_head(target), tokenizer=word_tokenizer(64)
    )


def test_what_a_user_says_is_read_through_the_chat_template_where_there_is_one(pair):
    asked = replace(PROMPTS, chat=True)
    plain = [prompt.ids for prompt in plan(SMALL, pair, PROMPTS).prompts]
    assert [prompt.ids for prompt in plan(SMALL, pair, asked).prompts] == plain
    pair.tokenizer.chat_template = "w9 {% for message in messages %}{{ message.content }} {% endfor %}w8"
    assert [prompt.ids for prompt in plan(SMALL, pair, PROMPTS).prompts] == plain
    around = [pair.encode("w9"), pair.encode("w8")]
    assert [prompt.ids for prompt in plan(SMALL, pair, asked).prompts] == [
        (*around[0], *ids, *around[1]) for ids in plain
    ]


def small(pair, **changed):
    return plan(SMALL.model_copy(update=changed), pair, PROMPTS, repeats=2)


def once(pair, **changed):
    """Each method once, on the first prompt."""
    return list(measure(plan(SMALL.model_copy(update=changed), pair, Workload("a", PROMPTS.tasks[:1]), repeats=1)))


def test_every_method_on_every_prompt_in_rounds_that_turn(pair):
    asked = small(pair)
    results = list(measure(asked))
    assert [(r.prompt_id, r.repeat, r.method) for r in results] == [
        ("a", 0, "plain"), ("a", 0, "chain"), ("a", 1, "plain"), ("a", 1, "chain"),
        ("b", 0, "plain"), ("b", 0, "chain"), ("b", 1, "plain"), ("b", 1, "chain"),
    ]  # fmt: skip
    assert asked.calls == len({result.key for result in results}) == 8
    assert [r.order for r in results] == [0, 1] * 4
    assert all(r.equal and r.new_tokens == 8 and r.failed is None for r in results)


def test_the_order_of_rounds():
    orders = ["".join(turned("abcd", n)) for n in range(5)]
    assert orders == ["abcd", "adcb", "cdab", "cbad", "abcd"]
    assert all(len({order[place] for order in orders}) > 1 for place in range(4))


def test_transformers_and_every_pass_are_timed(models):
    every = (
        PLAIN,
        Method(name="tree", strategy=DynaTree(budget="fixed")),
        Method(name="head", strategy=DraftHead(node_budget=6)),
    )
    every += (methods()["plain, module forward"], *OTHERS)
    found = {r.method: r for r in once(models, methods=every)}
    assert all(r.equal for r in found.values()), "transformers on the same weights says the same"
    for name, r in found.items():
        assert 0 < r.target_seconds < r.seconds, name
        assert 0 < r.ttft < r.seconds, name
        assert r.new_tokens == 8
        assert (r.draft_seconds > 0) == (r.draft_calls > 0) == (name in {"tree", "head", "transformers, assisted"})
    tree, plain, other = found["tree"], found["plain"], found["transformers, greedy"]
    assert (plain.target_calls, plain.iterations, plain.committed, other.target_calls) == (8, 7, 7, 8)
    assert tree.nodes == tree.drafted + tree.iterations
    assert tree.nodes == sum(cost.nodes * cost.passes for cost in tree.verify_cost)
    assert tree.accepted == sum(tree.depth_accepted)
    assert tree.longest_path == sum(tree.depth_drafted)
    assert set(tree.phases) == {"draft", "verify", "accept", "commit", "adapt"}
    assert other.drafted is other.accepted is None
    assert tree.settings["strategy"] == "DynaTree"
    assert found["transformers, assisted"].settings["assistant_model"] == DRAFT
    assert plain.peak_memory_bytes is None or plain.peak_memory_bytes > 1 << 20


def test_a_method_that_fails_is_a_row_that_says_why(models):
    alone = replace(models, draft=None, heads=())
    wrong = Method(name="wrong", generate={"cache_implementation": "no such thing"})
    results = once(alone, methods=(PLAIN, methods()["linear, K 5"], wrong))
    assert len(results) == 3
    assert {r.method for r in results if r.ok} == {"plain"}
    said = {r.method: r.failed for r in results if not r.ok}
    assert "draft" in said["linear, K 5"]
    assert said["wrong"].startswith("ValueError: ")


def test_a_text_that_differs_is_told_with_its_first_difference(pair, monkeypatch):
    real = running.call

    def changed(pair, method, ids, settings):
        done = real(pair, method, ids, settings)
        if method.name == "chain":
            done.token_ids[5] = (done.token_ids[5] + 1) % 64
        return done

    monkeypatch.setattr(running, "call", changed)
    found = list(measure(small(pair)))
    assert {(r.equal, r.first_difference, r.tie) for r in found if r.method == "chain"} == {(False, 5, None)}
    assert {(r.equal, r.first_difference) for r in found if r.method == "plain"} == {(True, None)}
    for bound, tie in ((1e9, True), (0.0, False)):
        monkeypatch.setitem(TOLERANCE, torch.float32, bound)
        assert {r.tie for r in measure(small(pair)) if r.method == "chain"} == {tie}, "as in half precision"


def test_the_end_of_text_is_obeyed_or_not_by_all(models):
    eos = call(models, PLAIN, [1, 2, 3], SessionSettings(max_new_tokens=4)).token_ids[3]
    ending = tiny("gpt_neox", eos_token_id=eos)
    ending.generation_config.eos_token_id = eos
    ends = load_pair(target=ending, draft=tiny("llama", seed=1), tokenizer=word_tokenizer(64))
    for stop, most in ((True, 4), (False, 8)):
        found = once(ends, methods=(PLAIN, *OTHERS), stop_at_eos=stop)
        assert len(found) == 4
        assert all(r.equal and (r.new_tokens <= most if stop else r.new_tokens == most) for r in found)
        if stop:
            assert {r.finished for r in found} == {"end of text"}


def test_records_are_taken_off_the_clock(models):
    some = (PLAIN, methods()["Goose"], OTHERS[0])
    found = {r.method: r for r in once(models, recorded=True, methods=some, max_new_tokens=32)}
    goose = found["Goose"]
    assert sum(rate.accepted for rate in goose.sources.values()) == goose.accepted
    assert goose.paths.spine_only + goose.paths.spine_continuation + goose.paths.branch_only == goose.accepted
    assert goose.bound is None or goose.bound.expected <= goose.bound.measured + 1e-9
    assert found["plain"].sources == {}
    assert found["transformers, greedy"].sources is None


def test_lengths_are_cut_to_the_context_and_a_note_says_so(pair):
    """The models read 256 tokens; prompts keep a quarter of that."""
    swept = tuple(one.at(x) for x in (100, 500, 900) for one in SMALL.methods)
    asked = plan(
        SMALL.model_copy(update={"methods": swept, "swept": "new tokens", "x_name": "T", "max_new_tokens": 900}),
        pair,
        PROMPTS,
        repeats=1,
    )
    assert {one.x for one in asked.methods} == {100, 252}
    assert len(asked.methods) == 4
    assert asked.max_new_tokens == 252
    assert "T is 252 instead of 900" in asked.notes[0]
    assert "T of 500, 900 cut to 252" in asked.notes[1]
    assert asked.inputs(asked.methods[0], asked.prompts[0])[1].max_new_tokens == 100
    long = Workload("long", (Prompt("a", "prose", " ".join(["w1"] * 200)),))
    asked = plan(SMALL.model_copy(update={"max_new_tokens": 300}), pair, long)
    assert (len(asked.prompts[0].ids), asked.max_new_tokens) == (64, 192)
    assert "1 of 1 prompts are cut to their first 64 tokens." in asked.notes


def test_prompts_are_cut_to_the_swept_length_and_short_ones_left_out(pair):
    swept = tuple(one.at(x) for x in (2, 4, 9) for one in SMALL.methods)
    lengths = SMALL.model_copy(update={"methods": swept, "swept": "prompt tokens", "x_name": "L"})
    asked = plan(lengths, pair, PROMPTS, repeats=1)
    found = list(measure(asked))
    assert [(r.prompt_id, r.prompt_tokens) for r in found if r.method == "plain"] == [("a", 2), ("b", 2), ("b", 4)]
    assert all(r.equal for r in found)
    assert asked.notes == (
        "L of 9 left out: the longest prompt has 4.",
        "L of 4: without the prompts that are shorter.",
    )
    with refused(MeasurementError, "No prompt is long enough"):
        plan(lengths.model_copy(update={"methods": swept[4:]}), pair, PROMPTS)


def test_a_folder_is_begun_gone_on_with_and_not_mixed(pair, tmp_path, monkeypatch):
    asked, folder = small(pair), tmp_path / "run"
    info, before = open_run(asked, folder, resume=False)
    going = run(asked, folder, info, before)
    for _ in range(3):
        next(going)
    going.close()
    assert len(read_results(folder).results) == 3
    assert read_results(folder).run.ended is None
    with refused(MeasurementError, "holds 3 results", "--resume"):
        open_run(asked, folder, resume=False)
    with refused(MeasurementError, "repeats was 2 and is 3"):
        open_run(plan(SMALL, pair, PROMPTS, repeats=3), folder, resume=True)
    with refused(MeasurementError, "prompts was"):
        open_run(plan(SMALL, pair, Workload("words", PROMPTS.tasks[:1]), repeats=2), folder, resume=True)
    info, before = open_run(asked, folder, resume=True)
    assert len(list(run(asked, folder, info, before))) == 5
    stored = read_results(folder)
    assert {result.key for result in stored.results} == {result.key for result in measure(asked)}
    assert len(stored.results) == 8
    assert stored.run.ended is not None
    assert [sentence.partition(":")[0] for sentence in finish(folder)] == ["table", "report"]
    assert (folder / PARQUET).exists()
    assert list(run(asked, folder, *open_run(asked, folder, resume=True))) == [], "there is nothing left to do"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "not installed: pip install" in next(finish(folder))
    (folder / RUN).unlink()
    with refused(MeasurementError, "without run.json"):
        open_run(asked, folder, resume=True)


def test_nothing_is_lost_or_counted_twice_after_a_kill(pair, tmp_path):
    """The killed process is a fork: one of its own would first load torch for many seconds."""
    asked, folder = plan(SMALL, pair, PROMPTS, repeats=2), tmp_path / "run"
    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        for count, _ in enumerate(run(asked, folder, *open_run(asked, folder, resume=False)), 1):
            if count == 5:
                os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    before = read_results(folder).results
    assert len(before) == 5
    done = list(run(asked, folder, *open_run(asked, folder, resume=True)))
    after = read_results(folder).results
    assert after[: len(before)] == before
    assert len(after) == len(before) + len(done) == len({result.key for result in after}) == 8
    assert read_results(folder).run.ended
