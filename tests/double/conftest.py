"""The double's weights count as plain tensors, which they are not: one type in the place of CUDA's tensors."""

import pytest
import torch

from speclab.models import transfers


@pytest.fixture(scope="session", autouse=True)
def plain_weights():
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setattr(transfers, "has_plain_weights", lambda _: True)
        yield
