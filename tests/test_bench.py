"""Methods side by side: calls, texts, alternation, executors, the picture; and where time goes."""

import distributed
import pandas as pd
import pytest
from support.command import speclab_command
from support.pairs import PROMPT, pair_of
from support.refusals import refused

import speclab
from speclab import bench
from speclab.bench import PLAIN
from speclab.errors import MeasurementError
from speclab.trace.metrics import loops

pytestmark = pytest.mark.model
METHODS = {
    PLAIN: {},
    "chain": speclab.LinearSpeculation(draft_tokens=3),
    "assisted": [{"assistant_model": "draft", "num_assistant_tokens": count} for count in (2, 4)],
    "lookup": {"prompt_lookup_num_tokens": 3},
    "plain": speclab.Autoregressive(),
}


def measured(pair=None, methods=METHODS, prompts=(PROMPT, PROMPT[:5]), **more):
    return bench.measure(
        pair or pair_of("llama"), methods, prompts, **({"repeats": 2, "max_new_tokens": 12} | more)
    )


@pytest.fixture(scope="module")
def frame():
    return measured()


def test_every_method_runs_on_every_prompt_in_turn_and_its_text_is_compared(frame):
    assert len(frame) == len(METHODS) * 2 * 2
    assert frame.same_text.all()
    assert (frame.tokens == 12).all()
    assert (frame.seconds > 0).all()
    orders = [list(rows.method) for _, rows in frame.groupby(["prompt", "repeat"])]
    assert orders[0] == orders[2] == list(METHODS)
    assert orders[1] == orders[3] == [*list(METHODS)[1:], PLAIN]
    assert frame[frame.method == "plain"].tokens_per_iteration.eq(1).all()
    assert set(frame[frame.method == "assisted"].arguments) <= {
        f"assistant_model=draft, num_assistant_tokens={count}" for count in (2, 4)
    }
    wrong = [{"min_new_tokens": 12, "repetition_penalty": 5.0}]  # gives another text
    other = measured(methods={PLAIN: {}, "wrong": wrong}, prompts=[PROMPT])
    assert other.same_text.tolist() == [method == PLAIN for method in other.method]


def test_transformers_drafts_with_the_arguments_given_and_the_draft_keeps_its_own():
    pair = pair_of("llama")
    before = pair.draft.model.generation_config
    accepting = {
        "assistant_model": "draft",
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0,
    }
    methods = {str(count): accepting | {"num_assistant_tokens": count} for count in (1, 6)}
    rates = measured(pair, methods, [PROMPT], repeats=1).tokens_per_iteration
    assert rates[0] <= 2
    assert rates[0] != rates[1]
    assert pair.draft.model.generation_config is before


def test_a_chat_model_is_asked_and_another_continues(monkeypatch):
    seen = []
    example = speclab.prompts.Prompt("dogs", "prose", "Dogs bark")
    pair = pair_of("llama")

    def read(_, prompt, *template):
        seen.append(prompt)
        return PROMPT, ()

    monkeypatch.setattr(type(pair), "read_prompt", read)
    for chats in (True, False):
        monkeypatch.setattr(type(pair), "chats", chats)
        measured(pair, {"plain": METHODS["plain"]}, [example], repeats=1, max_new_tokens=2)
    # the rest is its ids
    (question,), text = [prompt for prompt in seen if prompt != PROMPT]
    assert (question, text) == ({"role": "user", "content": "Dogs bark"}, "Dogs bark")


def test_the_summary_is_medians_beside_plain_decoding(frame):
    table = bench.summary(frame)
    assert set(table.index) == set(METHODS)
    medians = frame.groupby(["method", "prompt"]).tokens_per_second.median()
    ratios = medians["chain"] / medians[PLAIN]
    assert table.loc["chain", "times_plain"] == pytest.approx(ratios.median())
    assert table.loc[PLAIN, "times_plain"] == table.loc["plain", "times_own_plain"] == 1
    assert table.low.isna().all(), "two prompts have no interval"
    table = bench.summary(pd.concat([frame.assign(prompt=frame.prompt + mark) for mark in "abc"]))
    assert (table.low <= table.times_own_plain).all()
    assert (table.times_own_plain <= table.high).all()


def test_texts_that_loop_are_marked_and_the_figures_are_given_without_them(frame):
    assert not frame.loops.any(), "twelve tokens are too few to tell"
    assert loops([*range(40), *range(40, 52), *range(40, 52), *range(40, 52), *range(40, 52)])
    near = [turn if turn % 10 == 0 else turn % 10 for turn in range(1000, 1100)]
    assert loops(near), "one token in ten changes each time"
    assert not loops(range(200))
    assert not loops([1, 2] * 31)
    assert not loops([*[1, 2] * 40, *range(10, 60)])
    looping = frame[frame.prompt == frame.prompt[0]].assign(loops=True, prompt="loops")
    looping = looping.assign(tokens_per_second=1.0, tokens_per_iteration=9.0)
    parts = [frame.assign(prompt=frame.prompt + mark) for mark in "ab"]
    before = bench.summary(pd.concat(parts))
    after = bench.summary(pd.concat([*parts, looping])).loc[before.index]  # the fastest comes first
    assert (after.tokens_no_loops - before.tokens_per_iteration).abs().max() < 1e-9
    assert (after.times_no_loops - before.times_own_plain).abs().max() < 1e-9
    assert (after.tokens_per_iteration > before.tokens_per_iteration).all()
    assert (after.low <= after.times_own_plain).all()
    assert (after.times_own_plain <= after.high).all()
    assert bench.summary(looping).tokens_no_loops.isna().all()


def test_an_iteration_is_the_passes_python_and_the_rest(monkeypatch):
    """By a clock that moves one second whenever it is read."""
    pair = pair_of("llama")
    clock = iter(range(1 << 30))
    monkeypatch.setattr(bench, "_now", lambda _: float(next(clock)))
    table = bench.where(pair, METHODS, [PROMPT], max_new_tokens=12).T
    assert list(table) == list(METHODS)
    for name in ("plain", "chain"):
        row = table[name]
        parts = row.target + row.draft + row.python + row.outside
        assert parts == pytest.approx(row.whole)
        assert row.target == 1000, "one pass"
        assert row.draft == pytest.approx(1000 * row.passes)
    assert table.plain.tokens == table.plain.rows == table.plain.limit == 1
    run = speclab.generate(pair, METHODS["chain"], PROMPT, max_new_tokens=12).metrics
    assert table.chain.tokens == pytest.approx(run.tokens_per_iteration)
    assert table.chain.limit == pytest.approx(table.chain.tokens / (1 + table.chain.passes))
    assert 2 <= table.chain.passes <= table.chain.rows <= 4
    assert (table.T.reached <= table.T.limit).loc[["plain", "chain"]].all()
    assert table.T.reached.notna().all()


def test_dasks_workers_load_their_models_by_name():
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None) as client:
        frame = measured(
            "mini",
            {PLAIN: {}, "DynaTree": speclab.DynaTree()},
            ["Once", "The"],
            executor=client.get_executor(),
        )
    assert len(frame) == 8
    assert frame.same_text.all()


def test_an_executor_without_workers_is_said():
    with (
        distributed.Client(processes=False, n_workers=0, dashboard_address=None) as client,
        refused(MeasurementError, "0 of 1", "workers"),
    ):
        measured("mini", {PLAIN: {}}, ["Once"], executor=client.get_executor(), timeout=1)


def test_what_cannot_be_measured_is_refused():
    with refused(MeasurementError, "nothing to measure"):
        measured(prompts=[])
    alone = speclab.load_pair(target=pair_of("llama").target.model)
    with refused(MeasurementError, "'assisted'", "draft model"):
        measured(alone, {"assisted": METHODS["assisted"]})


def test_the_command_writes_a_picture_and_the_calls_or_refuses_before_it_measures(tmp_path):
    page = tmp_path / "bench.html"
    texts = tmp_path / "prompts.txt"
    texts.write_text("Once upon a time\n\nThe ship left\n")
    chosen = "DynaTree(node_budget=6)"

    def called(to, *more):
        words = ["--repeats", 1, "--max-new-tokens", 4, "--prompts", texts]
        return speclab_command("bench", *words, "--strategy", chosen, "--to", to, *more)

    assert "missing/bench.html cannot be used" in called(tmp_path / "missing/bench.html").stderr
    assert chosen in called(page, "--where").output
    assert not page.exists()
    done = called(page)
    assert done.exit_code == 0, done.output
    assert "prompts measured" in done.output
    frame = pd.read_csv(page.with_suffix(".csv"))
    assert set(frame.method) == {PLAIN, "plain", chosen}
    assert frame.prompt.nunique() == 2
    text = page.read_text(encoding="utf-8")
    assert chosen in text
    assert 'src="http' not in text
    assert '"showSendToCloud": false' in text, "one click would upload the prompts"
    assert {PLAIN, "plain"} < set(bench.methods(speclab.load_pair()))
