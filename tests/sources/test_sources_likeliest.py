"""The search for the largest of a row, against sorting all of it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclab.models.transfers import STRIPES, largest, likeliest


@pytest.fixture(autouse=True)
def none_is_few(monkeypatch):
    monkeypatch.setattr("speclab.models.transfers.FEW", 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 12), st.integers(1, 5), st.integers(12, 900), st.integers(0, 1000))
def test_the_largest_are_those_of_a_sorted_row(width, rows, columns, seed):
    """Whether its columns divide by the stripes or not, and whether it is searched in stripes at all."""
    random = torch.Generator().manual_seed(seed)
    found = torch.rand(rows, columns + 3, generator=random)[:, :columns]
    values, places = largest(found, width)
    ordered = found.sort(dim=-1, descending=True)
    assert torch.equal(values, ordered.values[:, :width])
    assert torch.equal(places, ordered.indices[:, :width])


def test_equal_values_are_found_as_often_as_they_stand_there():
    rows = torch.zeros(1, 40 * STRIPES)
    rows[0, ::40] = 1.0  # all in one column of the stripes
    values, places = largest(rows, 10)
    assert values.tolist() == [[1.0] * 10]
    assert len({place for place in places[0].tolist() if place % 40 == 0}) == 10


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_probabilities_are_of_all_tokens_in_float32(dtype):
    logits = torch.randn(3, 700, generator=torch.Generator().manual_seed(0)).to(dtype)
    ids, probabilities = likeliest(logits, 5)
    assert probabilities.dtype == torch.float32
    assert torch.equal(probabilities, logits.float().softmax(-1).gather(1, ids))
