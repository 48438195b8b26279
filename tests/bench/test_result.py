"""What is stored stays readable: the schema, cut lines, full disks, other runs."""

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
