"""The device double itself: it refuses, counts and forgets as CUDA does."""

from __future__ import annotations

import pytest
import torch

from double import Double, device

pytestmark = pytest.mark.double


def test_tensors_say_where_they_lie_and_compute_what_the_cpu_computes():
    with device():
        rows = torch.arange(6.0).view(2, 3).to("cuda")
        assert isinstance(rows, Double)
        assert rows.device == torch.device("cuda:0")
        assert (rows @ rows.T).tolist() == [[5, 14], [14, 50]]
    assert not torch.cuda.is_available()


def test_two_devices_do_not_meet_in_one_operator_and_numbers_of_the_host_do():
    with device(2):
        first, second = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
        with pytest.raises(RuntimeError, match="at least two devices, cuda:1 and cuda:0"):
            first + second
        with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu"):
            first + torch.ones(2)
        assert (first + torch.tensor(1.0)).tolist() == [2, 2]
        with pytest.raises(TypeError, match=r"Use Tensor\.cpu"):
            first.numpy()


def test_what_waits_is_counted_and_what_is_queued_is_not():
    with device() as gpu:
        x = torch.ones(3).to("cuda")
        x.add_(1).mul(2)
        assert gpu.waited() == 1
        for waits in (lambda: x.sum().item(), x.tolist, x.cpu, x.nonzero, lambda: x[[0, 1]], torch.cuda.synchronize):
            before = gpu.waited()
            waits()
            assert gpu.waited() == before + 1


def test_late_copies_are_there_when_something_has_waited():
    with device() as gpu:
        x, host = torch.ones(2, device="cuda"), torch.zeros(2, pin_memory=True)
        host.copy_(x, non_blocking=True)
        assert host.isnan().all()
        assert gpu.waited() == 0
        torch.cuda.current_stream().synchronize()
        assert host.tolist() == [1, 1]
        x.copy_(host, non_blocking=True)
        with pytest.raises(AssertionError, match="while its upload may still be under way"):
            host.fill_(3)
        x.tolist()
        host.fill_(3)
