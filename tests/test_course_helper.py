"""What the tests of exercises accept."""

from __future__ import annotations

import numpy as np
import pytest

from speclab.course import expect


def test_a_tuple_an_array_and_rounding_are_accepted():
    expect(lambda pair: (pair[0], np.array([0.1 + 0.2])), [1, 2], expected=[1, [0.3]])


@pytest.mark.parametrize("answer", [lambda row: row[:1], lambda row: row.append(3) or [1, 2]])
def test_another_value_and_changed_arguments_are_not(answer):
    with pytest.raises(AssertionError, match=r"\(\[1, 2\],\)"):
        expect(answer, [1, 2], expected=[1, 2])
