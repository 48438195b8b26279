"""Methods side by side: calls, texts, alternation, executors, the page."""

import re
from dataclasses import replace

import distributed
import pandas as pd
import pytest
from support.pairs import PROMPT, pair_of
from support.refusals import refused
from typer.testing import CliRunner

import speclab
from speclab import bench
from speclab.bench import PLAIN
from speclab.cli import app
from speclab.errors import MeasurementError

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
    pair = pair_of("llama")
    before = pair.draft.model.generation_config
    calls = measured(pair)
    assert pair.draft.model.generation_config is before, (
        "transformers reads the draft's, so it is changed for a call"
    )
    return calls


def test_every_method_runs_on_every_prompt_in_turn_and_its_text_is_compared(frame):
    assert list(frame.columns) == list(bench.COLUMNS)
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
    assert frame.machine.str.contains("torch").all()


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


def test_the_page_needs_no_network_shows_markup_as_text_and_names_a_text_that_is_not_the_targets(
    tmp_path,
):
    """`min_new_tokens` with a penalty gives another text."""
    wrong = [{"min_new_tokens": 12, "repetition_penalty": 5.0}]
    frame = measured(methods={PLAIN: {}, "<b>&": wrong}, prompts=[PROMPT])
    assert frame.same_text.tolist() == [method == PLAIN for method in frame.method]
    text = bench.report(frame, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;&amp;: 1" in text
    assert "<b>&:" not in text
    assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="http', text)


def test_the_summary_is_medians_and_quartiles_beside_plain_decoding(frame):
    table = bench.summary(frame)
    assert set(table.index) == set(METHODS)
    own = frame[frame.method == "chain"]
    assert table.loc["chain", "median"] == pytest.approx(own.tokens_per_second.median())
    assert (table.lower_quartile <= table["median"]).all()
    medians = frame.groupby(["method", "prompt"]).tokens_per_second.median()
    ratios = medians["chain"] / medians[PLAIN]
    assert table.loc["chain", "times_plain"] == pytest.approx(ratios.median())
    assert table.loc[PLAIN, "times_plain"] == table.loc["plain", "times_own_plain"] == 1
    assert table.low.isna().all(), "two prompts have no interval"
    table = bench.summary(pd.concat([frame.assign(prompt=frame.prompt + mark) for mark in "abc"]))
    assert (table.low <= table.times_own_plain).all()
    assert (table.times_own_plain <= table.high).all()


def test_a_strategy_slower_than_plain_decoding_is_named(frame):
    """Transformers' methods are no strategies of speclab, so they are not named."""
    changed = frame.assign(tokens_per_second=10.0)
    assert not any(name in bench.verdict(changed) for name in ("chain", "lookup"))
    changed.loc[changed.method.isin(["chain", "lookup"]), "tokens_per_second"] = 5.0
    said = bench.verdict(changed)
    assert "chain (0.50 times)" in said
    assert "lookup" not in said
    assert bench.verdict(changed[changed.method != "plain"]) == ""


def test_dasks_workers_load_their_models_by_name():
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None) as client:
        executor = client.get_executor()
        frame = measured(
            "mini", {PLAIN: {}, "DynaTree": speclab.DynaTree()}, ["Once", "The"], executor=executor
        )
        with refused(MeasurementError, "in memory", "'mini'"):
            measured(executor=executor)
    assert len(frame) == 8
    assert frame.same_text.all()


def test_what_cannot_be_measured_is_refused(tmp_path):
    with refused(MeasurementError, "nothing to measure"):
        measured(prompts=[])
    with refused(MeasurementError, "'assisted'", "draft model"):
        measured(replace(pair_of("llama"), draft=None), {"assisted": METHODS["assisted"]})
    with refused(MeasurementError, "nothing to report"):
        bench.report(pd.DataFrame(columns=list(bench.COLUMNS)), tmp_path / "page.html")


def test_the_command_writes_a_page_and_the_calls_or_refuses_before_it_measures(tmp_path):
    page = tmp_path / "bench.html"
    texts = tmp_path / "prompts.txt"
    texts.write_text("Once upon a time\n\nThe ship left\n")
    chosen = "DynaTree(node_budget=6)"

    def called(to):
        words = ["--repeats", "1", "--max-new-tokens", "4", "--prompts", str(texts)]
        words += ["--strategy", chosen, "--to", str(to)]
        return CliRunner().invoke(app, ["bench", *words])

    for place in (tmp_path / "missing" / "bench.html", tmp_path):
        assert "cannot be written" in called(place).stderr
    done = called(page)
    assert done.exit_code == 0, done.output
    assert "prompts measured" in done.output
    frame = pd.read_csv(page.with_suffix(".csv"))
    assert set(frame.method) == {PLAIN, "plain", chosen}
    assert frame.prompt.nunique() == 2
    assert page.exists()
    assert {PLAIN, "plain"} < set(bench.methods(speclab.load_pair()))
