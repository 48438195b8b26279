"""Bits by rows: which operators change a row's bits, as a table, a picture and JSON."""

import json

import pandas as pd
import pytest
import torch
from support.command import speclab_command
from support.refusals import refused
from support.tiny import make_uneven, tiny

import speclab
from speclab.errors import SettingsError

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def frame():
    model = tiny("qwen3")
    make_uneven(model)
    return speclab.rows.measure(model, dtypes=["float32", "float64"], rows=[1, 2, 4, 8, 12])


def first(frame, operator, dtype="float32"):
    rows = frame[(frame.operator == operator) & (frame.dtype == dtype)]
    assert len(rows) == 1
    return rows["first"].iloc[0]


def test_the_operator_that_changes_bits_has_its_first_number_of_rows(frame):
    for dtype in ("float32", "float64"):
        assert first(frame, "model.layers.N.mlp.act_fn", dtype) == 8
        assert pd.isna(first(frame, "model.layers.N.input_layernorm", dtype))
        assert first(frame, "whole pass, by own path", dtype) in (2, 4, 8)
    assert not pd.isna(first(frame, "whole pass, under a mask"))


def test_a_module_in_memory_keeps_its_dtype():
    model = tiny("llama")
    frame = speclab.rows.measure(model, dtypes=["bfloat16"], rows=[2])
    assert set(frame.dtype) == {"bfloat16"}
    assert model.dtype == torch.float32
    assert set(speclab.rows.measure(model, rows=[2]).dtype) == {"float32"}


def test_a_family_without_a_tree_mask_has_its_operators():
    frame = speclab.rows.measure(tiny("mamba"), rows=[1, 4])
    assert "backbone.layers.N.mixer.out_proj" in set(frame.operator)


def test_the_table_and_the_picture_have_every_operator(frame):
    table = speclab.rows.table(frame)
    assert len(table) == frame.operator.nunique()
    assert list(table.columns) == ["float32", "float64"]
    figure = speclab.rows.picture(frame)
    others = sum(len(trace.x) for trace in figure.data if trace.name == "others")
    every = sum(len(trace.x) for trace in figure.data)
    assert every == 5 * len(frame)
    starts = [start for start in frame["first"] if not pd.isna(start)]
    assert others == sum(count >= start for start in starts for count in (1, 2, 4, 8, 12))


def test_the_command_prints_a_table_or_json_and_writes_a_picture(tmp_path):
    page = tmp_path / "rows.html"
    words = ["rows", "mini", "--dtype", "float32", "--rows", "1,2,3"]
    result = speclab_command(*words, "--to", page)
    assert result.exit_code == 0
    assert "lm_head" in result.output
    assert page.stat().st_size > 1000
    data = json.loads(speclab_command(*words, "--json").stdout)
    assert data["rows"] == [1, 2, 3]
    assert {each["dtype"] for each in data["operators"]} == {"float32"}
    assert all(each["first"] in (None, 2, 3) for each in data["operators"])


@pytest.mark.parametrize("rows", [[], [1], [0, 4], [4, 5000]])
def test_rows_that_are_none_are_one_sentence(rows):
    with refused(SettingsError, "rows"):
        speclab.rows.measure(tiny("llama"), rows=rows)


def test_bad_words_are_one_sentence():
    result = speclab_command("rows", "mini", "--rows", "1,x")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "--rows" in result.stderr
    with refused(SettingsError, "dtype"):
        speclab.rows.measure("mini", dtypes=["int7"])
    with refused(SettingsError):
        speclab.rows.measure(3)
