"""One measured call as a record: its file, its figures, and what many of them come to."""

from __future__ import annotations

import json
import resource
from datetime import UTC, datetime
from pathlib import Path

import pytest
from refusals import refused

from speclab.analysis.attribution import SourceRate
from speclab.bench.result import (
    DERIVED,
    RESULTS,
    SCHEMA_VERSION,
    Result,
    RunInfo,
    VerifyCost,
    Writer,
    read_results,
    write_parquet,
    write_run,
)  # fmt: skip
from speclab.bench.run import loops, periodic, repeated
from speclab.bench.summary import ALL, over_all, spread, summaries, verify_costs, without_looping
from speclab.errors import MeasurementError

RESULT = Result(
    protocol="main",
    method="DynaTree",
    settings={"strategy": "DynaTree", "rank_acceptance": [0.5, 0.25]},
    workload="shipped",
    kind="prose",
    prompt_id="a line\u2028separator, and é",
    repeat=1,
    new_tokens=4,
    seconds=2.0,
    ttft=0.5,
    verify_cost=(VerifyCost(nodes=5, passes=2, seconds=0.25),),
    sources={"draft": SourceRate(drafted=8, tried=4, places=2, accepted=2, first=1)},
    equal=True,
)


@pytest.fixture
def folder(tmp_path) -> Path:
    write_run(tmp_path / "run", RunInfo(protocol="main", started=datetime.now(UTC), notes=("T is cut.",)))
    return tmp_path / "run"


def filled(folder: Path, count: int = 2) -> Path:
    with Writer(folder) as writer:
        for repeat in range(count):
            writer.add(RESULT.model_copy(update={"repeat": repeat}))
    return folder / RESULTS


def test_what_is_written_is_read(folder):
    assert read_results(folder).results == ()
    filled(folder)
    stored = read_results(folder)
    assert stored.results[1] == RESULT
    assert [result.repeat for result in stored.results] == [0, 1]
    assert (stored.run.protocol, stored.notes) == ("main", ("T is cut.",))


@pytest.mark.parametrize(
    "rest", [b"{", b'{"protocol": "ma', b"\0" * 4096, b"\xff\xfe"], ids=["one", "half", "zeros", "bytes"]
)
def test_a_last_line_that_was_cut_is_left_out_said_and_replaced(folder, rest):
    file = filled(folder)
    file.write_bytes(file.read_bytes() + rest)
    stored = read_results(folder)
    assert len(stored.results) == 2
    assert "line 3: cut short" in stored.notes[-1]
    filled(folder, 1)
    assert [result.repeat for result in read_results(folder).results] == [0, 1, 0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\xff\xfe\n", "line 3"),
        (b'{"protocol": "main"}\n', "line 3: method"),
        (RESULT.model_copy(update={"schema_version": SCHEMA_VERSION + 1}).model_dump_json().encode() + b"\n", "schema"),
    ],
)
def test_a_damaged_or_newer_line_is_named(folder, line, words):
    file = filled(folder)
    file.write_bytes(file.read_bytes() + line)
    with refused(MeasurementError, words):
        read_results(folder)


def test_a_folder_of_nothing_is_one_sentence(tmp_path):
    with refused(MeasurementError, "cannot be read", "check the path"):
        read_results(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with refused(MeasurementError, "cannot be made"):
        write_run(tmp_path / "file", RunInfo(protocol="main", started=datetime.now(UTC)))


def test_two_runs_do_not_write_into_one_folder(folder):
    """The second would measure again what the first is about to add."""
    before = filled(folder).read_bytes()
    with Writer(folder) as first:
        with refused(MeasurementError, "in use by another run", "choose another folder"):
            Writer(folder)
        first.add(RESULT)
    with Writer(folder) as writer:
        writer.add(RESULT)
    assert len((folder / "results.jsonl").read_bytes().splitlines()) == len(before.splitlines()) + 2


@pytest.mark.parametrize("name", ["a\0b", "x" * 300], ids=["NUL", "long"])
def test_a_folder_that_cannot_be_is_one_sentence(tmp_path, name):
    with pytest.raises(MeasurementError, match="cannot be read"):
        read_results(tmp_path / name)
    with pytest.raises(MeasurementError, match="cannot be made"):
        write_run(tmp_path / name, RunInfo(protocol="main", started=datetime.now(UTC)))


def test_a_full_disk_stops_and_keeps_what_is_done(folder):
    """The limit on the size of a file stands for the disk: a write beyond it is cut short, the next one fails."""
    file = filled(folder)
    room = file.stat().st_size + 100
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Writer(folder) as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            with refused(MeasurementError, "cannot be written", "make room", "--resume"):
                writer.add(RESULT)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert len(read_results(folder).results) == 2
        assert read_results(folder).notes == ("T is cut.",), "nothing is cut: half a line is taken back"
        writer.add(RESULT)
    assert len(read_results(folder).results) == 3


def test_parquet_has_a_column_a_field_and_the_derived_figures(folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(write_parquet(folder, [RESULT, RESULT])).to_pylist()
    assert len(rows) == 2
    assert rows[0].keys() == {*Result.model_fields, *DERIVED}
    assert rows[0]["throughput"] == 2.0
    assert json.loads(rows[0]["settings"]) == RESULT.settings
    assert json.loads(rows[0]["sources"])["draft"]["tried"] == 4


def test_parquet_needs_pyarrow(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with refused(MeasurementError, "pyarrow", "pip install"):
        write_parquet(folder, [RESULT])


def test_a_field_of_a_later_version_is_left_out():
    line = json.loads(RESULT.model_dump_json()) | {"colour": "blue"}
    assert Result.model_validate(line) == RESULT


RUN = RunInfo(protocol="main", methods=("plain", "fast"), started=datetime.now(UTC))


def made(method: str, seconds: float, prompt: str = "p", repeat: int = 0, **fields) -> Result:
    """A call of so many seconds for 100 new tokens."""
    known = {"protocol": "main", "workload": "w", "kind": "prose", "new_tokens": 100, "ttft": seconds / 10}
    return Result(method=method, seconds=seconds, prompt_id=prompt, repeat=repeat, **{**known, **fields})


def of(results, method, kind="prose", x=None):
    (one,) = [o for o in summaries(results, RUN) if (o.method, o.x, o.kind) == (method, x, kind)]
    return one


def test_a_prompt_stands_for_the_median_of_its_rounds_and_the_spread_is_that_of_prompts():
    times = {"a": (1.0, 2.0, 50.0), "b": (4.0, 4.0, 4.0), "c": (5.0, 5.0, 5.0)}
    results = [made("plain", took, prompt, i) for prompt, some in times.items() for i, took in enumerate(some)]
    own = of(results, "plain")
    rate = own.spread("throughput")
    assert (rate.median, rate.low, rate.high, rate.count) == (25.0, 22.5, 37.5, 3)
    assert own.speedup.median == own.speedup.low == own.speedup.high == 1


def test_a_ratio_is_taken_within_a_round_and_not_between_medians():
    results = [made("plain", took, repeat=i) for i, took in enumerate((1.0, 10.0, 4.0))]
    results += [made("fast", took, repeat=i) for i, took in enumerate((0.5, 2.5, 4.0))]
    own = of(results, "fast")
    assert own.speedup.median == 2.0, "the rounds gave 2, 4 and 1"
    assert own.spread("throughput").median == pytest.approx(100 / 2.5), "and medians alone would say 4 / 2.5"
    alone = [made("plain", 1.0), made("fast", 0.5), made("fast", 0.1, repeat=1)]
    assert (of(alone, "fast").speedup.count, of(alone, "fast").speedup.median) == (1, 2), "a round without the baseline"
    assert of(alone[1:], "fast").speedup is None


def test_the_baseline_of_a_swept_value_is_the_one_at_that_value_or_the_only_one():
    swept = [made("plain", 1.0, x=10), made("plain", 8.0, x=20), made("fast", 0.5, x=10), made("fast", 2.0, x=20)]
    assert [of(swept, "fast", x=x).speedup.median for x in (10, 20)] == [2, 4]
    alone = [made("plain", 1.0), made("fast", 0.5, x=0.9, x2=0.4)]
    assert summaries(alone, RUN)[1].speedup.median == 2


def test_derived_figures():
    result = made(
        "fast", 2.0, ttft=0.5, target_seconds=0.8, draft_seconds=0.4, iterations=25, committed=99, drafted=200,
        accepted=50, longest_path=100,
    )  # fmt: skip
    assert result.throughput == 50
    assert result.tpot == pytest.approx(1.5 / 99)
    assert result.host_seconds == pytest.approx(0.8)
    assert result.iteration_ms == 60
    assert result.tokens_per_iteration == 99 / 25
    assert (result.acceptance_rate, result.path_acceptance) == (0.25, 0.5)
    assert (result.paper_acceptance, result.path_length) == (0.99, 2.0)
    other = made("peer", 1.0, group="transformers", new_tokens=1, ttft=0.5, iterations=3)
    assert (other.acceptance_rate, other.path_acceptance, other.tpot) == (None,) * 3
    assert other.iteration_ms == 250, "its first pass is the prefill"


def test_looping_prompts_are_left_out_for_all_methods():
    results = [made(name, 1.0, prompt) for name in ("plain", "fast") for prompt in ("a", "b")]
    results[3] = results[3].model_copy(update={"looping": True})
    assert {result.prompt_id for result in without_looping(results)} == {"a"}
    assert (of(results, "plain").prompts, of(without_looping(results), "plain").prompts) == (2, 1)


def test_failures_are_counted_in_nothing():
    broken = [made("fast", 1.0, repeat=i, failed="no draft", equal=True) for i in range(2)]
    own = of([made("plain", 1.0), *broken], "fast")
    assert (own.prompts, own.spread("throughput"), own.speedup, own.equal, own.compared) == (0, None, None, 0, 0)
    assert [each.failed for each in own.failures] == ["no draft"] * 2


def test_a_text_is_equal_if_it_was_in_every_round_and_a_tie_is_no_difference():
    some = [made("fast", 1.0, "a", i, equal=equal) for i, equal in enumerate([True, False, True])]
    some += [made("fast", 1.0, "b", i, equal=False, tie=True) for i in range(3)]
    some += [made("fast", 1.0, "c", equal=None)]
    own = of(some, "fast")
    assert (own.equal, own.compared, own.ties, own.prompts) == (1, 2, 1, 3)


def test_kinds_come_one_by_one_and_then_together_in_the_order_of_the_run():
    results = [made(name, 1.0, kind, kind=kind) for kind in ("prose", "code") for name in ("fast", "plain")]
    found = summaries(results, RUN)
    assert [(one.kind, one.method) for one in found] == [
        (kind, name) for kind in ("prose", "code", ALL) for name in ("plain", "fast")
    ]
    assert [one.prompts for one in over_all(found)] == [2, 2]
    assert [one.kind for one in over_all(summaries(results[:1], RUN))] == ["prose"], "one kind needs no sum"


def test_a_spread_of_one_value_and_of_none():
    assert spread([]) is None
    assert (spread([3.0]).low, spread([3.0]).median, spread([3.0]).high) == (3, 3, 3)


def test_costs_weigh_a_call_by_its_passes():
    costs = [VerifyCost(nodes=4, passes=passes, seconds=seconds) for passes, seconds in ((9, 0.001), (2, 0.005))]
    assert verify_costs(made("fast", 1.0, verify_cost=(cost,)) for cost in costs) == [(4, 0.001, 11)]


FRESH, LATE = list(range(128)), [*range(80), *[500, 501, 502] * 16]
NEAR = [token for i in range(13) for token in (1, 2, 3, 4, 5, 6, 7, 8, 9, 100 + i)][:128]
CHORUS = [t for verse in range(8) for t in [*range(verse * 12, verse * 12 + 12), *range(900, 906)]][:128]


@pytest.mark.parametrize(
    ("tokens", "looping", "exactly"),
    [
        (FRESH, False, False), (LATE, True, True), (NEAR, True, False), (CHORUS, False, False),
        ([*range(112), *[500, 501] * 8], False, False), ([1, 2] * 20 + [0], False, False),
        *((([*range(100, 100 + period)] * 128)[:128], True, period <= 24) for period in (1, 2, 7, 24, 40)),
    ],
)  # fmt: skip
def test_a_text_loops_exactly_nearly_or_late_but_not_by_some_repetition(tokens, looping, exactly):
    assert (loops(tokens), periodic(tokens)) == (looping, exactly)


def test_repeated_marks_the_end_of_a_4gram_seen_before():
    assert repeated([1, 2, 3, 4, 1, 2, 3, 4]) == [False] * 7 + [True]
    assert repeated([7] * 6) == [False] * 4 + [True, True]
    assert repeated([1, 2]) == [False, False]
    assert repeated([1, 2, 3, 4] * 3, before=2) == [False] * 11 + [True]
