"""The fast top-k, against sorting all of a row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclab.models.answer import topk


@pytest.fixture(autouse=True)
def none_is_few(monkeypatch):
    monkeypatch.setattr("speclab.models.answer.FEW", 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 12), st.integers(1, 5), st.integers(3, 900), st.integers(0, 1000))
def test_the_largest_are_those_of_a_sorted_row(k, rows, columns, seed):
    """Whether its columns divide by the stripes or not, and whether it is searched in stripes at all."""
    random = torch.Generator().manual_seed(seed)
    found = torch.rand(rows, columns + 3, generator=random)[:, :columns]
    values, places = topk(found, k)
    ordered = found.sort(dim=-1, descending=True)
    assert torch.equal(values, ordered.values[:, :k])
    assert torch.equal(places, ordered.indices[:, :k])
